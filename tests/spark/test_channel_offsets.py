"""The offsets of a stream from a channel, driven in this process as Spark drives one: commits come a batch late."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.channel import stream
from pyspark_nsq.channel.rows import InlinePartition, SharedPartition
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.errors import OptionError, SpoolError
from pyspark_nsq.options.channel import ChannelOptions

from tests.process import NOTHING, ForkedNsqd, NsqdProcess, starting, wait_until
from tests.wire import HOST

Offset = dict[str, Any]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NsqdProcess]:
    with starting(tmp_path, ForkedNsqd) as start:
        one = start()
        one.create("t", "c")
        yield one


class Query:
    """One query. `offset` is where it goes on, as its checkpoint says, and `values` all that it has read."""

    def __init__(self, broker: NsqdProcess, spool: Path, **more: str) -> None:
        given = {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c", "idleTimeoutMs": "200"}
        self._options = ChannelOptions.parse(given | {"spoolPath": str(spool)} | more)
        self.reader = ChannelStreamReader(self._options)
        self.offset: Offset | None = None
        self.values: list[bytes] = []

    def step(self) -> bool:
        """Run a micro-batch, unless there is nothing new."""
        reader = self.reader
        start = self.offset or reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return False
        if self.offset is not None:
            reader.commit(start)
        for partition in reader.partitions(start, end):
            self.values += [value for batch in reader.read(partition) for value in batch.column("value").to_pylist()]
        self.offset = end
        return True

    def run(self) -> None:
        """Run with the trigger availableNow."""
        self.reader.prepareForTriggerAvailableNow()
        while self.step():
            pass
        self.restart()

    def restart(self) -> None:
        self.reader.stop()
        self.reader = ChannelStreamReader(self._options)


def publish(broker: NsqdProcess, start: int, stop: int) -> list[bytes]:
    values = [b"%d" % number for number in range(start, stop)]
    broker.publish("t", values)
    return values


@pytest.mark.parametrize("limit", [{"maxSpoolRows": "20"}, {"maxSpoolBytes": "720"}])
def test_each_run_takes_as_much_of_a_backlog_as_the_spool_holds(
    broker: NsqdProcess, tmp_path: Path, limit: dict[str, str]
) -> None:
    values = publish(broker, 10, 100)
    query = Query(broker, tmp_path / "spool", maxInFlightMessages="5", **limit)
    for number in range(1, 4):
        query.run()
        assert 20 * number <= len(query.values) <= 25 * number
    while len(query.values) < len(values):
        query.run()
    assert values == sorted(query.values)
    broker.await_counts("t", "c", NOTHING)


def test_a_run_that_was_killed_before_it_ended_does_not_stop_the_next_one(broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 10, 50)
    query = Query(broker, tmp_path / "spool", maxSpoolRows="20", maxInFlightMessages="5")
    query.reader.prepareForTriggerAvailableNow()
    assert query.step()
    query.restart()
    before = len(query.values)
    query.run()
    assert len(query.values) >= before + 15


def test_a_micro_batch_of_a_whole_full_spool_makes_room(broker: NsqdProcess, tmp_path: Path) -> None:
    values = publish(broker, 10, 60)
    query = Query(broker, tmp_path / "spool", maxSpoolRows="20", maxInFlightMessages="5")
    start = query.reader.initialOffset()
    wait_until(
        lambda: broker.counts("t", "c").in_flight == 0 and query.reader.reportLatestOffset()["seq"] >= 20,
        "the spool is full",
    )
    query.offset = start

    def is_done() -> bool:
        query.step()
        return len(query.values) == len(values)

    wait_until(is_done, "all rows are read")
    query.restart()
    assert values == sorted(query.values)


def test_a_spool_that_is_new_is_read_from_its_first_row(broker: NsqdProcess, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    values = publish(broker, 0, 20)
    query = Query(broker, spool, failOnDataLoss="false")
    query.run()
    shutil.rmtree(spool)
    for start in (20, 25, 60):
        values += publish(broker, start, start + 5)
        query.run()
        assert values == query.values


@pytest.mark.parametrize(("here", "kind"), [(True, SharedPartition), (False, InlinePartition)])
def test_tasks_on_this_machine_read_the_spool_themselves(
    broker: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool, kind: type
) -> None:
    monkeypatch.setattr(stream, "tasks_run_here", lambda: here)
    publish(broker, 0, 5)
    query = Query(broker, tmp_path / "spool")
    query.reader.prepareForTriggerAvailableNow()
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    assert [kind, kind] == [type(one) for one in query.reader.partitions(start, end)]
    query.reader.stop()


def test_a_spool_that_lost_its_end_is_an_error_and_never_hides_new_rows(broker: NsqdProcess, tmp_path: Path) -> None:
    spool, copy = tmp_path / "spool", tmp_path / "copy"
    values = publish(broker, 0, 5)
    query = Query(broker, spool)
    query.run()
    shutil.copytree(spool, copy)
    values += publish(broker, 5, 10)
    query.run()
    shutil.rmtree(spool)
    copy.rename(spool)
    with pytest.raises(SpoolError, match="it ends at row 5, and the stream had read it up to row 10"):
        query.run()
    query.restart()
    going_on = Query(broker, spool, failOnDataLoss="false")
    going_on.offset = query.offset
    for start in (10, 12, 20):
        publish(broker, start, start + 2)
        going_on.run()
    assert [b"%d" % number for number in (10, 11, 12, 13, 20, 21)] == going_on.values


@pytest.mark.parametrize("offset", [{"http://127.0.0.1:4151": 7}, {"t": {"http://127.0.0.1:4151": 7}}, {"t": {"0": 1}}])
def test_the_checkpoint_of_another_source_is_one_line(tmp_path: Path, offset: Offset) -> None:
    given = {"nsqdTcpAddresses": f"{HOST}:1", "topic": "t", "channel": "c", "spoolPath": str(tmp_path / "spool")}
    reader = ChannelStreamReader(ChannelOptions.parse(given))
    limit = reader.getDefaultReadLimit()
    for call in (
        lambda: reader.latestOffset(offset, limit),
        lambda: reader.partitions(offset, offset),
        lambda: reader.commit(offset),
    ):
        with pytest.raises(OptionError, match=r"^the checkpoint is not of a query on a channel, .* another folder$"):
            call()
    assert not (tmp_path / "spool").exists()
