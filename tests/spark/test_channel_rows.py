"""How the rows of a channel travel to the tasks."""

import pickle
from pathlib import Path

import pytest
from pyspark_nsq.channel.rows import InlinePartition, SharedPartition, cuts, inline
from pyspark_nsq.channel.spool import Spool
from pyspark_nsq.channel.v2_message import Message
from pyspark_nsq.errors import SpoolError
from pyspark_nsq.options.channel import ChannelOptions

OPTIONS = ChannelOptions.parse({"nsqdTcpAddresses": "a:1", "topic": "t", "channel": "c"})


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool.open(str(tmp_path / "spool"))
    made.append([("a:1", [Message(10**18 + 1500, 2, b"%016x" % number, b"%d" % number) for number in range(5)])], 0)
    return made


def shared(spool: Spool, after: int, end: int) -> SharedPartition:
    return SharedPartition("t", "c", spool.path, spool.uuid, after, end)


def rows(partition: InlinePartition | SharedPartition) -> list[tuple[object, ...]]:
    """As a task has them, which gets the partition pickled."""
    arrived = pickle.loads(pickle.dumps(partition))
    return [tuple(row.values()) for batch in arrived.batches() for row in batch.to_pylist()]


def test_both_ways_carry_the_same_rows(spool: Spool) -> None:
    carried = rows(inline(OPTIONS, spool.rows(1, 3)))
    assert carried == rows(shared(spool, 1, 3))
    assert [(b"1", "t", "c", "0" * 15 + "1"), (b"2", "t", "c", "0" * 15 + "2")] == [row[:4] for row in carried]
    assert [(1, 2, "a:1")] * 2 == [(row[4].microsecond, *row[5:]) for row in carried]  # type: ignore[attr-defined]


def test_a_spool_is_not_read_from_another_machine(spool: Spool) -> None:
    elsewhere = shared(spool, 0, 5)
    elsewhere.machine = "another"
    with pytest.raises(SpoolError, match='set the option "spoolMode" to "inline"'):
        rows(elsewhere)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [(2, 9)]), (2, [(2, 5), (5, 9)]), (9, [(number, number + 1) for number in range(2, 9)])]
)
def test_cuts(count: int, expected: list[tuple[int, int]]) -> None:
    assert expected == cuts(2, 9, count)
