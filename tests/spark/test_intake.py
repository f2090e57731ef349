"""Errors inside the intake of a stream: the query's thread gets them, and no message is finished."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.channel.intake import Intake
from pyspark_nsq.errors import ReadError
from pyspark_nsq.options.channel import ChannelOptions

from tests.process import NOTHING, Counts, ForkedNsqd, NsqdProcess, Start, starting, wait_until
from tests.wire import ANSWER_SECONDS


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker with one message for the channel."""
    with starting(tmp_path, ForkedNsqd) as start:
        yield _with_a_message(start)


def _with_a_message(start: Start) -> NsqdProcess:
    broker = start()
    broker.create("t", "c")
    broker.publish("t", [b"1"])
    return broker


def intake(nsqd: NsqdProcess, path: str, **more: str) -> Intake:
    given = {"nsqdTcpAddresses": f"127.0.0.1:{nsqd.tcp_port}", "topic": "t", "channel": "c", "spoolPath": path}
    return Intake(ChannelOptions.parse(given | more), path)


def failure_of(one: Intake) -> ReadError | None:
    """The error that the query's thread gets now."""
    try:
        one.end()
    except ReadError as error:
        return error
    return None


@pytest.mark.parametrize(
    "method",
    [
        "pyspark_nsq.channel.spool.Spool.append",
        "pyspark_nsq.channel.spool_ids.KnownIds.add",
        "pyspark_nsq.channel.segment_writer.SegmentWriter.write",
        "pyspark_nsq.channel.v2_connection.V2Connection.finish",
        "pyspark_nsq.channel.v2_spans.SpanReader._messages",
    ],
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


def test_an_unexpected_error_of_a_look_up_reaches_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def overflow(*arguments: Any) -> None:
        raise OverflowError("too many nsqds")

    monkeypatch.setattr("pyspark_nsq.http.lookup.Lookup.producers_of", overflow)
    path = str(tmp_path / "spool")
    given = {"lookupdHttpAddresses": "127.0.0.1:1", "topic": "t", "channel": "c", "spoolPath": path}
    with closing(Intake(ChannelOptions.parse(given), path)) as broken:
        wait_until(lambda: failure_of(broken) is not None, "the error is raised")
        assert "OverflowError: too many nsqds" in str(failure_of(broken))


@pytest.mark.parametrize("limit", ["maxSpoolRows", "maxSpoolBytes"])
def test_a_full_spool_takes_no_more_until_spark_is_done_with_some(
    nsqd: NsqdProcess, tmp_path: Path, limit: str
) -> None:
    """A message is 35 bytes in the spool. What was in flight when it became full still comes."""
    nsqd.publish("t", [b"x"] * 299)
    path = str(tmp_path / "spool")
    most = {"maxSpoolRows": "100", "maxSpoolBytes": "3500"}[limit]
    with closing(intake(nsqd, path, **{limit: most, "maxInFlightMessages": "10"})) as full:
        wait_until(lambda: full.end() >= 100, "the spool is full")
        nsqd.await_counts("t", "c", Counts(depth=300 - full.end(), in_flight=0, deferred=0))
        assert full.end() <= 110
        for _ in range(3):
            full.forget(full.end())
            wait_until(lambda: full.end() - full.first() >= 99 or full.end() == 300, "it is full again")
        wait_until(lambda: full.end() == 300, "all are there")


def test_messages_are_finished_when_they_are_synced(
    nsqd: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "spool")
    may_go_on, waits = threading.Event(), threading.Event()
    sync = os.fdatasync

    def late(descriptor: int) -> None:
        waits.set()
        assert may_go_on.wait(ANSWER_SECONDS)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", late)
    with closing(intake(nsqd, path)) as one:
        assert waits.wait(ANSWER_SECONDS)
        assert nsqd.counts("t", "c").in_flight == 1
        assert one.end() == 0, "Spark hears of it when it is synced, too"
        may_go_on.set()
        nsqd.await_counts("t", "c", NOTHING)
        assert one.end() == 1
