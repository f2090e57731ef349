"""Errors inside the intake of a stream: the query's thread gets them, and no message is finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.channel.intake import Intake
from pyspark_nsq.errors import ReadError
from pyspark_nsq.options.channel import ChannelOptions

from tests.process import NsqdProcess, Start, starting, wait_until


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker with one message for the channel."""
    with starting(tmp_path) as start:
        yield _with_a_message(start)


def _with_a_message(start: Start) -> NsqdProcess:
    broker = start()
    broker.create("t", "c")
    broker.publish("t", [b"1"])
    return broker


def intake(nsqd: NsqdProcess, path: str) -> Intake:
    given = {"nsqdTcpAddresses": f"127.0.0.1:{nsqd.tcp_port}", "topic": "t", "channel": "c", "spoolPath": path}
    return Intake(ChannelOptions.parse(given), path)


def failure_of(one: Intake) -> ReadError | None:
    """The error that the query's thread gets now."""
    try:
        one.end()
    except ReadError as error:
        return error
    return None


@pytest.mark.parametrize(
    "method", ["pyspark_nsq.channel.spool.Spool.append", "pyspark_nsq.channel.v2_connection.V2Connection.finish"]
)
def test_an_unexpected_error_reaches_the_query(
    nsqd: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def overflow(*arguments: Any) -> int:
        raise OverflowError("too large to store")

    path = str(tmp_path / "spool")
    with monkeypatch.context() as patches:
        patches.setattr(method, overflow)
        with closing(intake(nsqd, path)) as broken:
            wait_until(lambda: failure_of(broken) is not None, "the error is raised")
            failure = failure_of(broken)
    assert "OverflowError: too large to store" in str(failure)
    assert isinstance(failure and failure.__cause__, OverflowError)
    with closing(intake(nsqd, path)) as healthy:
        wait_until(lambda: healthy.end() == 1, "the message is delivered again, and stored once")
