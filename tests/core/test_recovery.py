"""What becomes of deferred messages when the options say that delays are not kept."""

from __future__ import annotations

import pytest

from tests.core.world import World

HOUR_MS = 3_600_000


@pytest.mark.parametrize("clean", [True, False], ids=["stop", "crash"])
def test_deferred_messages_come_back_as_waiting_ones(clean: bool) -> None:
    world = World(keep_deferred=False)
    world.channel()
    world.put(b"later", delay_ms=HOUR_MS)
    world.turn()
    assert world.channel().deferred_count == 1
    if clean:
        world.stop_and_start()
    else:
        world.save()
        world.crash()
    assert (world.channel().deferred_count, world.channel().depth) == (0, 1)
    assert [(m.body, m.attempts) for m in world.reader().read()] == [(b"later", 1)]


def test_a_requeued_message_comes_back_with_its_attempts() -> None:
    world = World(keep_deferred=False)
    reader = world.reader()
    world.put(b"a")
    (message,) = reader.read()
    reader.requeue(message.id, 3600.0)
    world.stop_and_start()
    assert [(m.body, m.attempts) for m in world.reader().read()] == [(b"a", 2)]


def test_what_a_paused_topic_keeps_is_not_deferred_any_more() -> None:
    world = World(keep_deferred=False)
    world.channel()
    world.topic().pause()
    world.put(b"later", delay_ms=HOUR_MS)
    world.turn()
    world.stop_and_start()
    reader = world.reader()
    world.topic().unpause(world.now)
    assert reader.bodies() == [b"later"]


def test_what_a_topic_without_a_channel_keeps_is_not_deferred_for_an_ephemeral_one_either() -> None:
    world = World(keep_deferred=False)
    world.put(b"later", delay_ms=HOUR_MS)
    world.turn()
    world.stop_and_start()
    world.put(b"put since", delay_ms=HOUR_MS)
    world.turn()
    reader = world.reader("c#ephemeral")
    assert (reader.bodies(), reader.channel.deferred_count) == ([b"later"], 1)


def test_with_delays_kept_the_same_message_waits() -> None:
    world = World()
    world.channel()
    world.put(b"later", delay_ms=HOUR_MS)
    world.turn()
    world.stop_and_start()
    assert world.reader().bodies() == []
    assert world.channel().deferred_count == 1


def test_what_does_not_fit_into_the_memory_queue_is_not_deferred() -> None:
    world = World(keep_deferred=False, mem_queue_size=1)
    world.put(b"in memory", delay_ms=HOUR_MS)
    world.put(b"on disk", delay_ms=HOUR_MS)
    reader = world.reader()
    assert reader.bodies() == [b"on disk"]
    world.put(b"flows", delay_ms=HOUR_MS)
    assert (reader.bodies(), world.channel().deferred_count) == ([], 2)
