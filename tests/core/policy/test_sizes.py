"""The bytes between two places of a log are about right, however it was published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.policy.sizes import Scan, Sizes
from tests.core.harness import BrokerHarness

BOUND = 64_000
LARGEST = 5 * 3000
"""Bytes of the largest segment."""


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(1, 3000)), max_size=200), st.data())
def test_the_error_is_a_sixty_fourth_of_the_bound_and_one_segment(
    segments: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    sizes, exact, sequence = Sizes(100, BOUND), {}, 100
    for gap, count, size in segments:
        sequence += gap
        sizes.add(sequence, sequence + count, size * count)
        exact.update(dict.fromkeys(range(sequence, sequence + count), size))
        sequence += count
    start = data.draw(st.integers(100, sequence))
    stop = data.draw(st.integers(start, sequence))
    sizes.forget_below(start)
    wanted = sum(size for at, size in exact.items() if start <= at < stop)
    assert abs(sizes.between(start, stop) - wanted) <= 2 * max(BOUND // 64, LARGEST)
    assert sizes.between(100, 100) == 0


def test_messages_of_one_size_are_counted_exactly() -> None:
    sizes = Sizes(0, 6400)
    for number in range(1000):
        sizes.add(10 * number, 10 * number + 10, 340)
        sizes.sample(10, 340)
    sizes.forget_below(500)
    assert sizes.between(777, 9000) == (9000 - 777) * 34
    assert sizes.start <= 500
    assert sizes.message_size == 34


@pytest.mark.plain  # what is replaced is a method of the core
def test_a_log_that_was_there_is_looked_through_in_few_reads() -> None:
    core = BrokerHarness()
    channel = core.channel()
    for _ in range(200):
        core.put(*[b"x" * 66] * 100)
        core.turn()
    core.save()
    core.broker._cache.limit = 0
    core.put(b"x" * 66)
    core.turn()
    log = core.topic().log
    reads = []
    read = log.read
    log.read = lambda sequence, limit: reads.append(sequence) or read(sequence, limit)  # type: ignore[func-returns-value]
    scan = Scan(log, channel.cursor.next, BOUND, core.topic().reader.count, lambda segment: True)
    while not scan.is_done:
        scan.step()
    assert len(reads) <= 65
    assert scan.sizes.between(channel.cursor.next, log.end) == 20_001 * 100


def test_a_gap_of_sequences_has_no_bytes_and_no_messages() -> None:
    core = BrokerHarness()
    channel = core.channel()
    core.put(*[b"x" * 66] * 10)
    core.save()
    core.crash()
    core.put(*[b"x" * 66] * 10)
    core.turn()
    channel, log = core.channel(), core.topic().log
    scan = Scan(log, channel.cursor.next, BOUND, core.topic().reader.count, lambda segment: True)
    while not scan.is_done:
        scan.step()
    assert scan.sizes.between(channel.cursor.next, log.end) == 20 * 100
    assert scan.sizes.message_size == 100
