"""Many deferred messages: what of them is in memory, and what is read when."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.checkpoint import PendingRow
from nsqtw.core.pending import PendingStore
from nsqtw.core.segment import sequence_of
from nsqtw.errors import BackendError
from tests.core.world import Reader, World

HOUR_MS = 3_600_000
PAGE_ROWS = 4


def paged_world(**options: Any) -> World:
    world = World(page_rows=PAGE_ROWS, **options)
    world.channel()
    world.save()
    return world


def pending(world: World, channel: str = "c") -> PendingStore:
    cursor = world.channel(channel).cursor
    assert cursor is not None
    return cursor._pending


def in_memory(world: World) -> int:
    found = pending(world)
    return len(found._rows) + sum(run.count for run in found._runs)


def defer(world: World, *delays_ms: int) -> list[bytes]:
    """A message for each delay, with the delay as its body."""
    bodies = [b"%d" % delay_ms for delay_ms in delays_ms]
    for body, delay_ms in zip(bodies, delays_ms, strict=True):
        assert world.put(body, delay_ms=delay_ms) == []
        world.turn()
    return bodies


def drain(reader: Reader) -> list[bytes]:
    """All that comes, finished."""
    bodies = []
    while messages := reader.read():
        bodies += [message.body for message in messages]
        assert reader.finish(*[message.id for message in messages]) == []
    return bodies


def forbid_reading(world: World) -> None:
    world.positions.read_failure = BackendError("nothing is read here")


def test_few_are_all_in_memory_and_nothing_is_ever_read() -> None:
    world = paged_world()
    forbid_reading(world)
    bodies = defer(world, *range(1000, 1000 + 2 * PAGE_ROWS))
    world.save()
    assert in_memory(world) == 2 * PAGE_ROWS
    world.wait(2)
    assert drain(world.reader()) == bodies


def test_of_many_a_page_or_two_are_in_memory_once_they_are_saved() -> None:
    world = paged_world()
    reader = world.reader()
    delays = [1000 + 7919 * number % 1000 for number in range(100)]
    bodies = defer(world, *delays)
    assert in_memory(world) == 100
    world.save()
    assert PAGE_ROWS <= in_memory(world) <= 2 * PAGE_ROWS
    assert (reader.channel.deferred_count, reader.channel.depth) == (100, 0)
    received = []
    for _ in range(110):
        world.wait(0.01)
        received += drain(reader)
        assert in_memory(world) <= 3 * PAGE_ROWS
    world.wait(1)
    received += drain(reader)
    assert received == sorted(bodies)
    assert (reader.channel.deferred_count, reader.channel.depth) == (0, 0)
    world.save()
    world.crash()
    assert (world.channel().deferred_count, world.channel().depth) == (0, 0)


def test_a_large_run_that_is_far_ahead_is_never_spread_into_rows() -> None:
    world = paged_world()
    forbid_reading(world)
    world.put(*[b"x"] * 1000, delay_ms=HOUR_MS)
    world.turn()
    assert len(pending(world)._rows) == 0
    assert world.channel().deferred_count == 1000
    world.save()
    assert in_memory(world) == 0
    assert world.channel().deferred_count == 1000


def test_what_is_due_earlier_than_what_is_in_memory_comes_first() -> None:
    world = paged_world()
    reader = world.reader()
    late = defer(world, *range(50_000, 50_020))
    world.save()
    early = defer(world, *range(20_000, 20_020))
    world.save()
    first = defer(world, 10_000)
    assert in_memory(world) <= 2 * PAGE_ROWS + 1
    received = []
    for _ in range(60):
        world.wait(1)
        received += drain(reader)
    assert received == first + early + late


@pytest.mark.parametrize("is_saved", [False, True])
def test_none_is_early_and_none_is_late_over_a_crash(is_saved: bool) -> None:
    world = paged_world()
    bodies = defer(world, *range(1000, 31_000, 1000))
    if is_saved:
        world.save()
    for second in range(31):
        world.wait(0.5)
        world.crash()
        ready = sum(int(body) <= second * 1000 + 500 for body in bodies)
        assert (world.channel().depth, world.channel().deferred_count) == (ready, 30 - ready)
        world.wait(0.5)
    assert drain(world.reader()) == bodies


def test_what_became_due_while_nobody_ran_is_counted_and_not_read() -> None:
    world = paged_world()
    world.put(*[b"%03d" % number for number in range(100)], delay_ms=HOUR_MS)
    world.turn()
    world.save()
    world.now += HOUR_MS / 1000
    world.crash()
    channel = world.channel()
    assert (channel.depth, channel.deferred_count, channel.backend_depth) == (100, 0, 100)
    assert in_memory(world) <= 2 * PAGE_ROWS
    assert drain(world.reader()) == [b"%03d" % number for number in range(100)]
    assert (channel.depth, channel.deferred_count) == (0, 0)


def test_requeued_ones_are_read_in_pages_after_a_start() -> None:
    world = paged_world()
    reader = world.reader()
    world.put(*[b"%03d" % number for number in range(100)])
    messages = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    for message in messages:
        reader.requeue(message.id, 0.0)
    world.save()
    world.crash()
    assert (world.channel().depth, in_memory(world) <= 2 * PAGE_ROWS) == (100, True)
    messages = world.reader().read()
    assert [message.body for message in messages] == [b"%03d" % number for number in range(100)]
    assert {message.attempts for message in messages} == {2}


def test_a_save_that_fails_keeps_them_in_memory() -> None:
    world = paged_world()
    reader = world.reader()
    bodies = defer(world, *range(1000, 31_000, 1000))
    world.save(BackendError("full"))
    assert in_memory(world) == 30
    world.wait(15)
    assert drain(reader) == bodies[:15]
    world.save(BackendError("full"))
    world.wait(15)
    assert drain(reader) == bodies[15:]


def test_what_is_being_saved_is_not_read_before_it_is_saved() -> None:
    world = paged_world()
    reader = world.reader()
    bodies = defer(world, *range(1000, 21_000, 1000))
    save = world.begin_save()
    world.wait(10)
    early = drain(reader)
    assert early == bodies[: len(early)]
    world.positions.save(save.checkpoint)
    world.wait(5)
    early += drain(reader)
    world.broker.checkpointer.end(save, None)
    world.wait(5)
    assert early + drain(reader) == bodies


def test_positions_that_cannot_be_read_are_read_later() -> None:
    world = paged_world()
    reader = world.reader()
    bodies = defer(world, *range(1000, 31_000, 1000))
    world.save()
    forbid_reading(world)
    world.wait(40)
    first = drain(reader)
    assert 0 < len(first) < 30
    assert ("error", "TOPIC(t): failed to read, will try again - nothing is read here") in world.lines
    world.positions.read_failure = None
    world.wait(1.0)
    assert first + drain(reader) == bodies


def test_what_is_saved_before_any_can_be_read_is_not_counted_twice() -> None:
    """What was in flight at a crash is known, and saved again as requeued."""
    world = paged_world()
    reader = world.reader()
    world.put(*[b"in flight"] * 4)
    world.put(*[b"late"] * 12)
    for message in reader.read():
        if message.body == b"late":
            reader.requeue(message.id, 30.0)
    world.save()
    world.positions.read_failure = BackendError("EIO")
    world.crash()
    world.save()
    world.positions.read_failure = None
    world.wait(2)
    channel = world.channel()
    assert (channel.depth, channel.deferred_count) == (4, 12)
    assert drain(world.reader()) == [b"in flight"] * 4
    assert (channel.depth, channel.deferred_count) == (0, 12)


def test_rows_that_are_lost_on_the_medium_are_not_waited_for() -> None:
    """They are counted until they are missed."""
    world = paged_world()
    bodies = defer(world, *range(1000, 31_000, 1000))
    world.save()
    world.crash()
    (topic,) = world.positions.saved.topics
    del topic.cursors[0].pending[10:]
    world.wait(31)
    assert drain(world.reader()) == bodies[:10]
    assert (world.channel().depth, world.channel().deferred_count) == (0, 0)


def test_an_emptied_channel_reads_no_rows_of_before() -> None:
    world = paged_world()
    defer(world, *range(1000, 31_000, 1000))
    world.save()
    world.channel().empty()
    assert world.channel().deferred_count == 0
    new = defer(world, *range(5000, 35_000, 1000))
    world.wait(40)
    assert drain(world.reader()) == new
    world.save()
    world.crash()
    assert (world.channel().depth, world.channel().deferred_count) == (0, 0)


def test_a_deleted_channel_of_the_same_name_has_none_of_its_rows() -> None:
    world = paged_world()
    defer(world, *range(1000, 31_000, 1000))
    world.save()
    world.topic().delete_channel("c")
    new = world.channel()
    bodies = defer(world, *range(1500, 31_500, 1000))
    assert new.deferred_count == 30
    world.save()
    world.wait(40)
    assert drain(world.reader()) == bodies


def test_a_paused_channel_counts_what_falls_due() -> None:
    world = paged_world()
    world.channel().pause()
    bodies = defer(world, *range(1000, 31_000, 1000))
    world.save()
    for _ in range(8):
        world.wait(5)
    assert (world.channel().depth, world.channel().deferred_count) == (30, 0)
    assert in_memory(world) <= 3 * PAGE_ROWS
    world.channel().unpause()
    assert drain(world.reader()) == bodies


def test_the_wall_clock_jumps_while_the_broker_runs() -> None:
    """In either direction, and it is started again later: what is due follows the time that passed."""
    for jump_s in (-7200, 7200):
        world = paged_world()
        bodies = defer(world, *range(1000, 31_000, 1000))
        world.save()
        world.broker.wall_offset_ns += jump_s * 10**9
        world.wall_ns += jump_s * 10**9
        assert world.broker.checkpointer.are_wanted
        world.save()
        assert not world.broker.checkpointer.are_wanted
        world.crash()
        world.wait(10)
        assert world.channel().depth == 10
        world.wait(20)
        assert sorted(drain(world.reader())) == sorted(bodies)


def test_unfinished_sequences_are_known_to_who_trims() -> None:
    world = paged_world()
    reader = world.reader()
    defer(world, *range(1000, 31_000, 1000))
    world.put(b"now")
    assert drain(reader) == [b"now"]
    world.save()
    answer = world.positions.unfinished("t")
    assert answer is not None
    assert len(list(answer[1])) == 30


def test_looking_at_held_rows() -> None:
    """Deferred ones, and those that are ready, wherever they are; no more than asked for."""
    world = paged_world()
    defer(world, *range(1000, 21_000, 1000))
    world.save()
    defer(world, *range(500, 20_500, 1000))
    cursor = world.channel().cursor
    assert cursor is not None

    def dues(*, deferred: bool, limit: int) -> list[int]:
        rows: list[PendingRow] = cursor.pending_rows(world.now, deferred=deferred, limit=limit)
        return [round((cursor.due_at(row) - start) * 1000) for row in rows]

    start = world.now
    assert dues(deferred=True, limit=100) == list(range(500, 20_500, 500))
    assert dues(deferred=True, limit=7) == list(range(500, 4_000, 500))
    assert dues(deferred=False, limit=7) == []
    world.wait(5)
    assert dues(deferred=True, limit=3) == [5500, 6000, 6500]
    assert dues(deferred=False, limit=100) == list(range(500, 5_500, 500))
    assert dues(deferred=False, limit=3) == [500, 1000, 1500]


def test_rows_are_forgotten_and_their_messages_may_be_held_again() -> None:
    """As a channel that is moved does it."""
    world = paged_world()
    reader = world.reader(ready=1)
    world.put(b"a")
    (message,) = reader.read()
    defer(world, *range(1000, 21_000, 1000))
    world.save()
    cursor = world.channel().cursor
    assert cursor is not None
    cursor.forget_pending()
    assert (world.channel().depth, world.channel().deferred_count) == (0, 0)
    reader.requeue(message.id, 5.0)
    world.save()
    assert [row.sequence for row in world.positions.pending("t", "c", (-1, -1), 99)] == [sequence_of(message.id)]
    world.crash()
    world.wait(5)
    assert drain(world.reader()) == [b"a"]
