"""How the rows of a channel travel to the tasks."""

import pickle
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.channel.batch import _packed
from pyspark_nsq.channel.rows import InlinePartition, SharedPartition, cuts
from pyspark_nsq.channel.spool import Spool
from pyspark_nsq.errors import SpoolError

from tests.spark.spans import bodies_of, frame, span_of


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool.open(str(tmp_path / "spool"))
    frames = [frame(b"%016x" % number, b"%d" % 10**number, 10**18 + 1500, 2) for number in range(5)]
    made.append([span_of("a:1", frames[:2]), span_of("a:1", frames[2:])], 0)
    made.append([span_of("b:1", [frame(b"f" * 16, b"other", 0, 65535)])], 0)
    return made


def shared(spool: Spool, after: int, end: int) -> SharedPartition:
    return SharedPartition("t", "c", spool.path, spool.uuid, after, end, skips_damage=False)


def rows(partition: InlinePartition | SharedPartition) -> list[tuple[object, ...]]:
    """As a task has them, which gets the partition pickled."""
    arrived = pickle.loads(pickle.dumps(partition))
    return [tuple(row.values()) for batch in arrived.batches() for row in batch.to_pylist()]


def test_both_ways_carry_the_same_rows(spool: Spool) -> None:
    carried = rows(InlinePartition("t", "c", list(spool.spans(1, 6))))
    assert carried == rows(shared(spool, 1, 6))
    expected = [(b"%d" % 10**number, "t", "c", "0" * 15 + str(number)) for number in range(1, 5)]
    assert [*expected, (b"other", "t", "c", "f" * 16)] == [row[:4] for row in carried]
    assert [(row[4].microsecond, *row[5:]) for row in carried[:4]] == [(1, 2, "a:1")] * 4  # type: ignore[attr-defined]
    assert carried[4][5:] == (65535, "b:1")


def test_no_rows() -> None:
    assert rows(InlinePartition("t", "c", [])) == []


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=5), st.integers(1, 4))
def test_a_batch_is_cut_into_parts_that_are_not_too_large(sizes: list[list[int]], partitions: int) -> None:
    numbers = iter(range(1_000))
    spans = [span_of("a:1", [frame(b"%016d" % next(numbers), b"x" * size) for size in some]) for some in sizes]
    with mock.patch("pyspark_nsq.channel.batch.MOST_INLINE_BYTES", 12):
        parts = list(_packed(spans, partitions))
    assert bodies_of(spans) == [body for part in parts for body in bodies_of(part)]
    assert all(sum(map(len, bodies_of(part))) <= 12 for part in parts)
    total = sum(map(len, sizes))
    assert min(partitions, total) <= len(parts)


def test_a_spool_is_not_read_from_another_machine(spool: Spool) -> None:
    elsewhere = shared(spool, 0, 5)
    elsewhere.machine = "another"
    with pytest.raises(SpoolError, match='set the option "spoolMode" to "inline"'):
        rows(elsewhere)


def test_rows_that_a_task_cannot_find_have_a_remedy(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").rename(tmp_path / "another")
    with pytest.raises(SpoolError, match="or reads a micro-batch after its end, set the option") as caught:
        rows(shared(spool, 0, 5))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [(2, 9)]), (2, [(2, 5), (5, 9)]), (9, [(number, number + 1) for number in range(2, 9)])]
)
def test_cuts(count: int, expected: list[tuple[int, int]]) -> None:
    assert expected == cuts(2, 9, count)
