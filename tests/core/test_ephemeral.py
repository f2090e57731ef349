"""Ephemeral topics and channels: in memory, bounded, gone with their last user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, Exiting
from tests.core.world import World

C = "c#ephemeral"
T = "t#ephemeral"


def test_an_ephemeral_channel_ends_with_its_last_consumer() -> None:
    world = World()
    one, two = world.reader(C), world.reader(C)
    one.leave()
    assert C in world.topic().channels
    two.leave()
    assert C not in world.topic().channels


def test_one_that_never_had_a_consumer_stays() -> None:
    world = World()
    world.channel(C)
    world.turn()
    assert C in world.topic().channels


def test_it_keeps_mem_queue_size_messages_and_drops_the_rest() -> None:
    world = World(mem_queue_size=3)
    reader = world.reader(C, ready=0)
    answers = world.put(*[b"%d" % n for n in range(5)])
    world.turn()
    assert (answers, reader.channel.depth, reader.channel.backend_depth) == ([None], 3, 0)
    assert reader.channel.message_count == 5
    assert reader.channel.dropped_count == 2
    reader.channel.set_ready(reader.consumer, 10)
    assert reader.bodies() == [b"0", b"1", b"2"]


def test_size_0_is_a_rendezvous() -> None:
    world = World(mem_queue_size=0)
    reader = world.reader(C, ready=2)
    world.put(b"a", b"b", b"c")
    got = reader.read()
    assert [m.body for m in got] == [b"a", b"b"]
    world.put(b"d")
    assert reader.read() == []
    assert reader.requeue(got[0].id) is None
    assert [m.attempts for m in reader.read()] == [2]


def test_a_requeued_message_waits_behind_those_that_wait() -> None:
    world = World(mem_queue_size=5)
    reader = world.reader("brief#ephemeral", ready=1)
    world.put(b"a", b"b", b"c")
    (a,) = reader.read()
    reader.requeue(a.id)
    world.put(b"d")
    got = []
    for _ in range(4):
        (message,) = reader.read()
        got.append((message.body, message.attempts))
        reader.finish(message.id)
    assert got == [(b"b", 1), (b"c", 1), (b"a", 2), (b"d", 1)]


def test_requeue_timeout_and_deferral_work_although_the_log_has_forgotten() -> None:
    world = World()
    world.broker._cache.limit = 0
    reader = world.reader(C)
    world.put(b"a", b"b")
    world.put(b"later", delay_ms=1000)
    a, b = reader.read()
    world.save()
    reader.requeue(a.id, 2.0)
    world.wait(1.5)
    (later,) = reader.read()
    world.wait(1)
    (again,) = reader.read()
    assert (later.body, later.attempts, again.id, again.attempts) == (b"later", 1, a.id, 2)
    world.wait(61)
    assert {(m.id, m.attempts) for m in reader.read()} == {(a.id, 3), (b.id, 2), (later.id, 2)}


def test_it_holds_nothing_back_and_is_never_saved() -> None:
    world = World()
    world.reader(C, ready=0)
    world.reader("durable")
    world.put(b"a")
    world.save()
    world.crash()
    assert list(world.topic().channels) == ["durable"]


def test_as_the_first_channel_it_gets_what_fits_of_what_the_topic_kept() -> None:
    world = World(mem_queue_size=3)
    world.put(*[b"%d" % n for n in range(5)])
    world.turn()
    assert world.reader(C).bodies() == [b"0", b"1", b"2"]


def test_an_ephemeral_topic_keeps_mem_queue_size_messages_for_its_first_channel() -> None:
    world = World(mem_queue_size=3)
    answers = world.put(b"a", b"b", topic=T)
    answers += world.put(b"c", b"d", b"e", topic=T)
    world.turn()
    topic = world.topic(T)
    assert (topic.depth, topic.backend_depth, topic.message_count) == (3, 0, 5)
    assert world.reader("c", T).bodies() == [b"a", b"b", b"c"]


def test_an_ephemeral_topic_ends_when_a_deletion_leaves_it_without_channels() -> None:
    world = World()
    reader = world.reader(C, T)
    world.channel("durable", T)
    reader.leave()
    assert T in world.broker.topics
    world.topic(T).delete_channel("durable")
    assert T not in world.broker.topics


def test_an_ephemeral_topic_lets_go_of_what_its_channels_are_done_with() -> None:
    world = World()
    reader = world.reader("durable", T, ready=2500)
    for _ in range(20):
        world.put(*[b"x" * 100] * 50, topic=T)
        reader.finish(*[m.id for m in reader.read()])
    world.save()
    assert world.topic(T).log.queue.size == 0


def test_a_durable_channel_moves_its_log_out_of_memory_with_what_is_there() -> None:
    world = World()
    world.put(b"a", b"b", topic=T)
    world.turn()
    world.reader(C, T, ready=0)
    assert world.stored() == []
    reader = world.reader("durable", T, ready=0)
    for n in range(30):
        world.put(b"%d" % n, topic=T)
        world.turn()
    assert world.stored() == [T]
    assert reader.channel.depth == 30
    reader.channel.set_ready(reader.consumer, 100)
    got = reader.read()
    assert [m.body for m in got] == [b"%d" % n for n in range(30)]
    reader.finish(*[m.id for m in got])
    world.save()
    assert world.topic(T).log.queue.size == 0


@pytest.mark.parametrize("end", ["clean stop", "crash"])
def test_nothing_of_it_is_left_after_a_restart(end: str) -> None:
    world = World()
    world.reader("durable", T)
    world.put(b"a", topic=T)
    world.turn()
    world.save()
    world.stop_and_start() if end == "clean stop" else world.crash()
    assert world.broker.topics == {}
    assert world.stored() == []
    assert world.reader("durable", T).bodies() == []


def test_its_name_is_free_again_once_its_storage_is_deleted() -> None:
    world = World()
    world.reader("durable", T)
    world.put(b"a", topic=T)
    world.turn()
    world.topic(T).delete_channel("durable")
    with pytest.raises(Exiting):
        world.topic(T)
    world.save()
    assert world.reader("durable", T).bodies() == []


def test_a_consumer_of_a_deleted_channel_that_leaves_late_does_no_harm_to_the_next_one() -> None:
    world = World()
    world.channel("keep")
    old = world.reader(C)
    world.topic().delete_channel(C)
    new = world.reader(C)
    old.leave()
    world.put(b"a")
    assert new.bodies() == [b"a"]
    assert not new.disconnected


def test_what_an_ephemeral_topic_drops_takes_no_memory() -> None:
    world = World(mem_queue_size=10)
    for _ in range(20):
        world.put(*[b"x" * 1000] * 10, topic=T)
        world.turn()
    topic = world.topic(T)
    assert (topic.depth, topic.message_count, topic.message_bytes) == (10, 200, 200_000)
    assert topic.log.queue.size < 11_000


def break_reading(world: World, topic: str = "t") -> Callable[[], None]:
    """Let the medium of a topic fail; returns what heals it."""
    queue = world.topic(topic).log.queue
    read = queue.read

    def fail(start: int, limit: int) -> list[Segment]:
        raise BackendError("EIO")

    queue.read = fail  # type: ignore[method-assign]
    return lambda: setattr(queue, "read", read)


def test_one_that_cannot_be_given_what_was_kept_is_not_born() -> None:
    world = World()
    world.put(b"a")
    world.turn()
    heal = break_reading(world)
    with pytest.raises(BackendError):
        world.channel(C)
    heal()
    assert world.topic().channels == {}
    assert world.reader("durable").bodies() == [b"a"]


def test_a_topic_whose_ephemeral_channel_cannot_be_given_what_was_kept_stays_paused() -> None:
    world = World()
    fleeting, durable = world.reader(C), world.reader("durable")
    world.topic().pause()
    world.put(b"a")
    world.turn()
    heal = break_reading(world)
    with pytest.raises(BackendError):
        world.topic().unpause(world.now)
    heal()
    assert world.topic().paused
    world.topic().unpause(world.now)
    assert (fleeting.bodies(), durable.bodies()) == ([b"a"], [b"a"])


def test_it_gets_what_was_kept_also_from_the_middle_of_a_block() -> None:
    world = World()
    world.broker._cache.limit = 0
    durable = world.reader("durable", ready=0)
    world.put(b"old1")
    world.turn()
    world.put(b"old2")
    world.turn()
    world.topic().pause()
    fleeting = world.reader(C)
    world.put(b"kept")
    world.turn()
    durable.channel.set_ready(durable.consumer, 1)
    assert durable.bodies() == [b"old1"]
    world.topic().unpause(world.now)
    assert fleeting.bodies() == [b"kept"]
