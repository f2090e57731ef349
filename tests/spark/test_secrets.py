"""Secrets: where they are read, and that Spark shows them nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkFiles
from pyspark_nsq.channel.sample import take
from pyspark_nsq.errors import OptionError, ReadError
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.security import Security
from pyspark_nsq.sink.publisher import Publisher

from tests.process import NsqdProcess
from tests.spark.fake_nsqd import FakeNsqd
from tests.spark.test_publisher import batch, options
from tests.wire import HOST

SECRET = "xyzzy-plugh"


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert SECRET == Security(auth_secret_file=str(file)).secret()


def test_a_file_among_those_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsq.secret").write_text(SECRET)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    assert SECRET == Security(auth_secret_file="nsq.secret").secret()


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSQ_SECRET", SECRET)
    assert SECRET == Security(auth_secret_env="NSQ_SECRET").secret()


def test_a_task_reads_the_secret_anew(nsqd: FakeNsqd, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for secret in ("old", "new"):
        file.write_text(secret)
        with Publisher(options(nsqd, authSecretFile=str(file))) as publisher:
            publisher.submit(batch(b"a"))
    assert {"Bearer old", "Bearer new"} == nsqd.authorizations


@pytest.mark.parametrize("held", [b"", b"\n", b"two words", b"two\nlines", b"\xff\xfe"])
def test_a_file_without_a_secret_is_named_and_not_shown(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(held)
    with pytest.raises(OptionError) as caught:
        Security(auth_secret_file=str(file)).secret()
    expected = f'option "authSecretFile": {file} must hold one line of printable ASCII without spaces'
    assert expected == str(caught.value)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (Security(auth_secret_file="/no/such"), 'option "authSecretFile": cannot read /no/such: No such file'),
        (Security(auth_secret_env="NO_SUCH"), "variable NO_SUCH is not set .* spark.executorEnv.NO_SUCH"),
    ],
)
def test_a_secret_that_is_not_there(security: Security, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        security.secret()
    assert "\n" not in str(caught.value)


def test_a_channel_that_lacks_its_secret_says_so(real_nsqd: NsqdProcess) -> None:
    given = {"nsqdTcpAddresses": f"{HOST}:{real_nsqd.tcp_port}", "topic": "t", "channel": "c", "idleTimeoutMs": "60000"}
    with pytest.raises(ReadError, match='option "authSecretFile": cannot read /no/such'):
        take(ChannelOptions.parse(given | {"authSecretFile": "/no/such"}))


def test_what_travels_with_the_job_holds_no_secret_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSQ_SECRET", SECRET)
    given = options("h:1", authSecretEnv="NSQ_SECRET")
    assert SECRET == given.secret()
    assert SECRET not in repr(vars(given))


def test_spark_shows_no_secret_anywhere(real_nsqd: NsqdProcess, tmp_path: Path) -> None:
    """In a Spark of its own, with web pages and an event log: `secret_job` looks at all of it."""
    real_nsqd.create("t", "c")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    real_nsqd.create("u")
    job = [
        sys.executable,
        "-m",
        "tests.spark.secret_job",
        str(tmp_path),
        str(real_nsqd.tcp_port),
        str(real_nsqd.http_port),
    ]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert 0 == done.returncode, done.stderr[-5000:]
    looked_at = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert {"places", "found", "control"} == looked_at.keys()
    assert "" == looked_at["found"].strip("-")
    assert 40 < int(looked_at["places"])
    assert "event-log" in looked_at["control"] and "/environment/" in looked_at["control"]
