"""Fixtures of the jobs' tests: a job that runs in this process, in the session that all Spark tests share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark_nsq.archive.parquet import configure
from pyspark_nsq.jobs.main import run
from pyspark_nsq.jobs.spark import SparkChoice

from tests.process import NsqdProcess
from tests.wire import HOST


class Outcome(NamedTuple):
    """What became of a job."""

    code: int
    out: str
    err: str


Job = Callable[..., Outcome]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """The shared session, with the settings of an archive for this test alone."""
    found = spark.newSession()
    configure(found)
    return found


@pytest.fixture
def job(session: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    """Runs the command line."""

    @contextmanager
    def shared(self: SparkChoice) -> Iterator[SparkSession]:
        yield session

    monkeypatch.setattr(SparkChoice, "session", shared)

    def done(*words: str) -> Outcome:
        capsys.readouterr()
        code = run(words)
        return Outcome(code, *capsys.readouterr())

    return done


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    """A broker with the topics "t" and "u", which keep their messages."""
    for topic in "tu":
        real_nsqd.create(topic)
        real_nsqd.order(f"/v2/topic/retention?topic={topic}&time=1h")
    return real_nsqd


def publish(broker: NsqdProcess, start: int, stop: int, topic: str = "t") -> list[bytes]:
    """Publish the numbers, and return the bodies."""
    bodies = [b"%d" % number for number in range(start, stop)]
    answer = broker.http("POST", f"/mpub?topic={topic}", b"\n".join(bodies))
    assert answer.status == 200, answer
    return bodies


def at(broker: NsqdProcess) -> str:
    """The option that names the broker."""
    return f"--nsqd-http-address={HOST}:{broker.http_port}"
