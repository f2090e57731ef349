"""Many deferred messages: what of them is in memory, and what is read when."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core import due_order
from nsqtw.core.checkpoint import PendingRow
from nsqtw.core.due_order import BEFORE_ALL
from nsqtw.core.pending import PendingStore
from nsqtw.core.segment import sequence_of
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness, Reader

HOUR_MS = 3_600_000
PAGE_ROWS = 4
FOR_EVER = 1e9


def paged_harness(**options: Any) -> BrokerHarness:
    harness = BrokerHarness(page_rows=PAGE_ROWS, **options)
    harness.channel()
    harness.save()
    return harness


def pending(harness: BrokerHarness, channel: str = "c") -> PendingStore:
    cursor = harness.channel(channel).cursor
    assert cursor is not None
    return cursor._pending


def in_memory(harness: BrokerHarness) -> int:
    found = pending(harness)
    return len(found._rows) + found._runs.count


def defer(harness: BrokerHarness, *delays_ms: int) -> list[bytes]:
    """A message for each delay, with the delay as its body."""
    bodies = [b"%d" % delay_ms for delay_ms in delays_ms]
    for body, delay_ms in zip(bodies, delays_ms, strict=True):
        assert harness.put(body, delay_ms=delay_ms) == []
        harness.turn()
    return bodies


def drain(reader: Reader) -> list[bytes]:
    """All that comes, finished."""
    bodies = []
    while messages := reader.read():
        bodies += [message.body for message in messages]
        assert reader.finish(*[message.id for message in messages]) == []
    return bodies


def forbid_reading(harness: BrokerHarness) -> None:
    harness.positions.read_failure = BackendError("nothing is read here")


def test_few_are_all_in_memory_and_nothing_is_ever_read() -> None:
    harness = paged_harness()
    forbid_reading(harness)
    bodies = defer(harness, *range(1000, 1000 + 2 * PAGE_ROWS))
    harness.save()
    assert in_memory(harness) == 2 * PAGE_ROWS
    harness.wait(2)
    assert drain(harness.reader()) == bodies


def test_of_many_a_page_or_two_are_in_memory_once_they_are_saved() -> None:
    harness = paged_harness()
    reader = harness.reader()
    delays = [1000 + 7919 * number % 1000 for number in range(100)]
    bodies = defer(harness, *delays)
    assert in_memory(harness) == 100
    harness.save()
    assert PAGE_ROWS <= in_memory(harness) <= 2 * PAGE_ROWS
    assert (reader.channel.deferred_count, reader.channel.depth) == (100, 0)
    received = []
    for _ in range(110):
        harness.wait(0.01)
        received += drain(reader)
        assert in_memory(harness) <= 3 * PAGE_ROWS
    harness.wait(1)
    received += drain(reader)
    assert received == sorted(bodies)
    assert (reader.channel.deferred_count, reader.channel.depth) == (0, 0)
    harness.save()
    harness.crash()
    assert (harness.channel().deferred_count, harness.channel().depth) == (0, 0)


def test_a_large_run_that_is_far_ahead_is_never_spread_into_rows() -> None:
    harness = paged_harness()
    forbid_reading(harness)
    harness.put(*[b"x"] * 1000, delay_ms=HOUR_MS)
    harness.turn()
    assert len(pending(harness)._rows) == 0
    assert harness.channel().deferred_count == 1000
    harness.save()
    assert in_memory(harness) == 0
    assert harness.channel().deferred_count == 1000


def test_a_store_whose_rows_are_all_on_disk_is_not_falsy() -> None:
    harness = paged_harness()
    assert pending(harness).count == 0 and not pending(harness).has_rows_in_memory
    harness.put(*[b"x"] * 1000, delay_ms=HOUR_MS)
    harness.turn()
    assert pending(harness).count == 1000 and not pending(harness).has_rows_in_memory
    assert pending(harness), "whether there are rows is asked by name: the store itself is always true"


def test_what_is_due_earlier_than_what_is_in_memory_comes_first() -> None:
    harness = paged_harness()
    reader = harness.reader()
    late = defer(harness, *range(50_000, 50_020))
    harness.save()
    early = defer(harness, *range(20_000, 20_020))
    harness.save()
    first = defer(harness, 10_000)
    assert in_memory(harness) <= 2 * PAGE_ROWS + 1
    received = []
    for _ in range(60):
        harness.wait(1)
        received += drain(reader)
    assert received == first + early + late


@pytest.mark.parametrize("again", [False, True])
def test_many_that_become_due_before_they_are_saved_are_looked_at_a_few_times(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80,000 requeues with delays below a second took 19 s while each page was found by a look at all of them."""
    count, looks = 500, 0
    pop, push = due_order.heappop, due_order.heappush

    def counted(do: Any, *arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return do(*arguments)

    monkeypatch.setattr(due_order, "heappop", partial(counted, pop))
    monkeypatch.setattr(due_order, "heappush", partial(counted, push))
    harness = paged_harness()
    delays = [100 + 7919 * number % 800 for number in range(count)]
    reader = harness.reader(ready=count)
    if again:
        harness.put(*[b"%d" % delay for delay in delays])
        for message in reader.read():
            assert reader.requeue(message.id, int(message.body) / 1000) is None
    else:
        defer(harness, *delays)
    received: list[bytes] = []
    for _ in range(100):
        harness.wait(0.01)
        received += drain(reader)
    assert sorted(received) == sorted(b"%d" % delay for delay in delays)
    assert len(pending(harness)._rows) == 0
    assert count < looks < 8 * count


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=20),
    st.integers(0, 20),
)
def test_each_comes_at_its_time(page_rows: int, deferred: list[tuple[bool, int, int]], saved: int) -> None:
    """Requeues and publishes, each of some messages, with delays in seconds; the first ones are `saved`."""
    harness = BrokerHarness(page_rows=page_rows)
    reader = harness.reader(ready=200)
    for number, (is_requeue, delay, count) in enumerate(deferred):
        if number == saved:
            harness.save()
        harness.put(*[b"%d" % delay] * count, delay_ms=0 if is_requeue else delay * 1000)
        for message in reader.read():
            reader.requeue(message.id, delay)
    for second in range(1, 10):
        harness.wait(1.0)
        received = drain(reader)
        harness.wait(0.1)  # they may be late by a tenth of a second
        harness.now -= 0.1
        received += drain(reader)
        assert received == [b"%d" % second] * sum(count for _, delay, count in deferred if delay == second)


def test_a_row_that_changes_while_it_is_saved_stays_in_memory() -> None:
    harness = paged_harness()
    reader = harness.reader()
    defer(harness, *range(10_000, 10_020))
    harness.put(b"again")
    (message,) = reader.read()
    reader.requeue(message.id, 1.0)
    save = harness.begin_save()
    harness.wait(1.0)
    (message,) = reader.read()
    reader.requeue(message.id, 20.0)
    harness.positions.save(save.checkpoint)
    harness.broker.checkpointer.end(save, None)
    harness.save()
    harness.wait(15.0)
    assert len(drain(reader)) == 20
    harness.wait(5.0)
    assert drain(reader) == [b"again"]


@pytest.mark.parametrize("is_saved", [False, True])
def test_none_is_early_and_none_is_late_over_a_crash(is_saved: bool) -> None:
    harness = paged_harness()
    bodies = defer(harness, *range(1000, 31_000, 1000))
    if is_saved:
        harness.save()
    for second in range(31):
        harness.wait(0.5)
        harness.crash()
        ready = sum(int(body) <= second * 1000 + 500 for body in bodies)
        assert (harness.channel().depth, harness.channel().deferred_count) == (ready, 30 - ready)
        harness.wait(0.5)
    assert drain(harness.reader()) == bodies


def test_what_became_due_while_nobody_ran_is_counted_and_not_read() -> None:
    harness = paged_harness()
    harness.put(*[b"%03d" % number for number in range(100)], delay_ms=HOUR_MS)
    harness.turn()
    harness.save()
    harness.now += HOUR_MS / 1000
    harness.crash()
    channel = harness.channel()
    assert (channel.depth, channel.deferred_count, channel.backend_depth) == (100, 0, 100)
    assert in_memory(harness) <= 2 * PAGE_ROWS
    assert drain(harness.reader()) == [b"%03d" % number for number in range(100)]
    assert (channel.depth, channel.deferred_count) == (0, 0)


def test_requeued_ones_are_read_in_pages_after_a_start() -> None:
    harness = paged_harness()
    reader = harness.reader()
    harness.put(*[b"%03d" % number for number in range(100)])
    messages = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    for message in messages:
        reader.requeue(message.id, 0.0)
    harness.save()
    harness.crash()
    assert (harness.channel().depth, in_memory(harness) <= 2 * PAGE_ROWS) == (100, True)
    messages = harness.reader().read()
    assert [message.body for message in messages] == [b"%03d" % number for number in range(100)]
    assert {message.attempts for message in messages} == {2}


def test_a_save_that_fails_keeps_them_in_memory() -> None:
    harness = paged_harness()
    reader = harness.reader()
    bodies = defer(harness, *range(1000, 31_000, 1000))
    harness.save(BackendError("full"))
    assert in_memory(harness) == 30
    harness.wait(15)
    assert drain(reader) == bodies[:15]
    harness.save(BackendError("full"))
    harness.wait(15)
    assert drain(reader) == bodies[15:]


def test_what_is_being_saved_is_not_read_before_it_is_saved() -> None:
    harness = paged_harness()
    reader = harness.reader()
    bodies = defer(harness, *range(1000, 21_000, 1000))
    save = harness.begin_save()
    harness.wait(10)
    early = drain(reader)
    assert early == bodies[: len(early)]
    harness.positions.save(save.checkpoint)
    harness.wait(5)
    early += drain(reader)
    harness.broker.checkpointer.end(save, None)
    harness.wait(5)
    assert early + drain(reader) == bodies


def test_positions_that_cannot_be_read_are_read_later() -> None:
    harness = paged_harness()
    reader = harness.reader()
    bodies = defer(harness, *range(1000, 31_000, 1000))
    harness.save()
    forbid_reading(harness)
    harness.wait(40)
    first = drain(reader)
    assert 0 < len(first) < 30
    assert ("error", "TOPIC(t): failed to read, will try again - nothing is read here") in harness.lines
    harness.positions.read_failure = None
    harness.wait(1.0)
    assert first + drain(reader) == bodies


def test_what_is_saved_before_any_can_be_read_is_not_counted_twice() -> None:
    """What was in flight at a crash is known, and saved again as requeued."""
    harness = paged_harness()
    reader = harness.reader()
    harness.put(*[b"in flight"] * 4)
    harness.put(*[b"late"] * 12)
    for message in reader.read():
        if message.body == b"late":
            reader.requeue(message.id, 30.0)
    harness.save()
    harness.positions.read_failure = BackendError("EIO")
    harness.crash()
    harness.save()
    harness.positions.read_failure = None
    harness.wait(2)
    channel = harness.channel()
    assert (channel.depth, channel.deferred_count) == (4, 12)
    assert drain(harness.reader()) == [b"in flight"] * 4
    assert (channel.depth, channel.deferred_count) == (0, 12)


def test_rows_that_are_lost_on_the_medium_are_not_waited_for() -> None:
    """They are counted until they are missed."""
    harness = paged_harness()
    bodies = defer(harness, *range(1000, 31_000, 1000))
    harness.save()
    harness.crash()
    (topic,) = harness.positions.saved.topics
    del topic.cursors[0].pending[10:]
    harness.wait(31)
    assert drain(harness.reader()) == bodies[:10]
    assert (harness.channel().depth, harness.channel().deferred_count) == (0, 0)


def test_rows_that_are_lost_before_many_others_are_not_looked_for_again() -> None:
    """What is behind them is too much for memory, so that the end of the rows is never reached."""
    harness = paged_harness()
    bodies = defer(harness, *range(1000, 41_000, 1000))
    harness.save()
    harness.crash()
    (topic,) = harness.positions.saved.topics
    harness.channel().pause()
    harness.wait(15)
    assert harness.channel().depth == 15
    del topic.cursors[0].pending[10:15]
    harness.channel().unpause()
    reader = harness.reader()
    assert drain(reader) == bodies[:10]
    assert harness.channel().depth == 0
    harness.wait(26)
    assert drain(reader) == bodies[15:]
    assert (harness.channel().depth, harness.channel().deferred_count) == (0, 0)


def test_an_emptied_channel_reads_no_rows_of_before() -> None:
    harness = paged_harness()
    defer(harness, *range(1000, 31_000, 1000))
    harness.save()
    harness.channel().empty()
    assert harness.channel().deferred_count == 0
    new = defer(harness, *range(5000, 35_000, 1000))
    harness.wait(40)
    assert drain(harness.reader()) == new
    harness.save()
    harness.crash()
    assert (harness.channel().depth, harness.channel().deferred_count) == (0, 0)


def test_a_deleted_channel_of_the_same_name_has_none_of_its_rows() -> None:
    harness = paged_harness()
    defer(harness, *range(1000, 31_000, 1000))
    harness.save()
    harness.topic().delete_channel("c")
    new = harness.channel()
    bodies = defer(harness, *range(1500, 31_500, 1000))
    assert new.deferred_count == 30
    harness.save()
    harness.wait(40)
    assert drain(harness.reader()) == bodies


def test_a_paused_channel_counts_what_falls_due() -> None:
    harness = paged_harness()
    harness.channel().pause()
    bodies = defer(harness, *range(1000, 31_000, 1000))
    harness.save()
    for _ in range(8):
        harness.wait(5)
    assert (harness.channel().depth, harness.channel().deferred_count) == (30, 0)
    assert in_memory(harness) <= 3 * PAGE_ROWS
    harness.channel().unpause()
    assert drain(harness.reader()) == bodies


def test_the_wall_clock_jumps_while_the_broker_runs() -> None:
    """In either direction, and it is started again later: what is due follows the time that passed."""
    for jump_s in (-7200, 7200):
        harness = paged_harness()
        bodies = defer(harness, *range(1000, 31_000, 1000))
        harness.save()
        harness.broker.wall_offset_ns += jump_s * 10**9
        harness.wall_ns += jump_s * 10**9
        assert harness.broker.checkpointer.are_wanted
        harness.save()
        assert not harness.broker.checkpointer.are_wanted
        harness.crash()
        harness.wait(10)
        assert harness.channel().depth == 10
        harness.wait(20)
        assert sorted(drain(harness.reader())) == sorted(bodies)


def test_unfinished_sequences_are_known_to_who_trims() -> None:
    harness = paged_harness()
    reader = harness.reader()
    defer(harness, *range(1000, 31_000, 1000))
    harness.put(b"now")
    assert drain(reader) == [b"now"]
    harness.save()
    answer = harness.positions.unfinished("t")
    assert answer is not None
    assert len(list(answer[1])) == 30


def test_looking_at_held_rows() -> None:
    """Deferred ones, and those that are ready, wherever they are; no more than asked for."""
    harness = paged_harness()
    defer(harness, *range(1000, 21_000, 1000))
    harness.save()
    defer(harness, *range(500, 20_500, 1000))
    cursor = harness.channel().cursor
    assert cursor is not None

    def dues(*, deferred: bool, limit: int) -> list[int]:
        rows: list[PendingRow] = cursor.pending_rows(harness.now, deferred=deferred, limit=limit)
        return [round((cursor.due_at(row) - start) * 1000) for row in rows]

    start = harness.now
    assert dues(deferred=True, limit=100) == list(range(500, 20_500, 500))
    assert dues(deferred=True, limit=7) == list(range(500, 4_000, 500))
    assert dues(deferred=False, limit=7) == []
    harness.wait(5)
    assert dues(deferred=True, limit=3) == [5500, 6000, 6500]
    assert dues(deferred=False, limit=100) == list(range(500, 5_500, 500))
    assert dues(deferred=False, limit=3) == [500, 1000, 1500]


def test_rows_are_forgotten_and_their_messages_may_be_held_again() -> None:
    """As a channel that is moved does it."""
    harness = paged_harness()
    reader = harness.reader(ready=1)
    harness.put(b"a")
    (message,) = reader.read()
    defer(harness, *range(1000, 21_000, 1000))
    harness.save()
    cursor = harness.channel().cursor
    assert cursor is not None
    cursor.forget_pending()
    assert (harness.channel().depth, harness.channel().deferred_count) == (0, 0)
    reader.requeue(message.id, 5.0)
    harness.save()
    assert [row.sequence for row in harness.positions.pending("t", "c", BEFORE_ALL, 99)[0]] == [sequence_of(message.id)]
    harness.crash()
    harness.wait(5)
    assert drain(harness.reader()) == [b"a"]


def test_a_run_that_the_border_divides_is_counted_once() -> None:
    """
    After a seek a run begins before the border and ends behind it. The part behind it was in memory, and counted as
    saved and due, too: then a channel with many deferred messages looked for it for ever.
    """
    harness = paged_harness(retention_time=FOR_EVER)
    harness.put(*[b"run"] * PAGE_ROWS, delay_ms=5000)
    harness.turn()
    early, late = defer(harness, 1000, 1001), defer(harness, *range(60_000, 60_000 + 3 * PAGE_ROWS))
    reader, channel = harness.reader(), harness.channel()
    harness.save()
    channel.seek(harness.topic().reader.kept_from)
    harness.save()
    channel.pause()
    harness.wait(10)
    assert (channel.depth, channel.deferred_count) == (2 + PAGE_ROWS, len(late))
    channel.unpause()
    assert drain(reader) == early + [b"run"] * PAGE_ROWS
    harness.wait(60)
    assert drain(reader) == late
