"""Fixtures of the Spark tests: a fake nsqd or a real one for each test, one Spark session for all of them."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark_nsq.session import local_session

from tests.process import ForkedNsqd, NsqdProcess
from tests.spark import fast_java
from tests.spark.fake_nsqd import FakeNsqd

fast_java.use()

_PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def nsqd() -> Iterator[FakeNsqd]:
    with FakeNsqd() as fake:
        yield fake


@pytest.fixture
def dead_address() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def real_nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker of ours as a process, without a topic."""
    process = ForkedNsqd(tmp_path / "broker")
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Costs some 5 s to start and 3 s more at the first write: hence shared."""
    # Tasks of tests, too, find their code.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
    session = local_session("pyspark-nsq tests")
    # A task that fails, as tests want it to, would print its stack three times.
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
