"""Ephemeral topics and channels: in memory, bounded, gone with their last user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, Exiting
from tests.core.harness import BrokerHarness

C = "c#ephemeral"
T = "t#ephemeral"


def test_an_ephemeral_channel_ends_with_its_last_consumer() -> None:
    harness = BrokerHarness()
    one, two = harness.reader(C), harness.reader(C)
    one.leave()
    assert C in harness.topic().channels
    two.leave()
    assert C not in harness.topic().channels


def test_one_that_never_had_a_consumer_stays() -> None:
    harness = BrokerHarness()
    harness.channel(C)
    harness.turn()
    assert C in harness.topic().channels


def test_it_keeps_mem_queue_size_messages_and_drops_the_rest() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    reader = harness.reader(C, ready=0)
    answers = harness.put(*[b"%d" % n for n in range(5)])
    harness.turn()
    assert (answers, reader.channel.depth, reader.channel.backend_depth) == ([None], 3, 0)
    assert reader.channel.message_count == 5
    assert reader.channel.dropped_count == 2
    reader.channel.set_ready(reader.consumer, 10)
    assert reader.bodies() == [b"0", b"1", b"2"]


def test_size_0_is_a_rendezvous() -> None:
    harness = BrokerHarness(mem_queue_size=0)
    reader = harness.reader(C, ready=2)
    harness.put(b"a", b"b", b"c")
    got = reader.read()
    assert [m.body for m in got] == [b"a", b"b"]
    harness.put(b"d")
    assert reader.read() == []
    assert reader.requeue(got[0].id) is None
    assert [m.attempts for m in reader.read()] == [2]


def test_a_requeued_message_waits_behind_those_that_wait() -> None:
    harness = BrokerHarness(mem_queue_size=5)
    reader = harness.reader("brief#ephemeral", ready=1)
    harness.put(b"a", b"b", b"c")
    (a,) = reader.read()
    reader.requeue(a.id)
    harness.put(b"d")
    got = []
    for _ in range(4):
        (message,) = reader.read()
        got.append((message.body, message.attempts))
        reader.finish(message.id)
    assert got == [(b"b", 1), (b"c", 1), (b"a", 2), (b"d", 1)]


def test_requeue_timeout_and_deferral_work_although_the_log_has_forgotten() -> None:
    harness = BrokerHarness()
    harness.broker._cache.limit = 0
    reader = harness.reader(C)
    harness.put(b"a", b"b")
    harness.put(b"later", delay_ms=1000)
    a, b = reader.read()
    harness.save()
    reader.requeue(a.id, 2.0)
    harness.wait(1.5)
    (later,) = reader.read()
    harness.wait(1)
    (again,) = reader.read()
    assert (later.body, later.attempts, again.id, again.attempts) == (b"later", 1, a.id, 2)
    harness.wait(61)
    assert {(m.id, m.attempts) for m in reader.read()} == {(a.id, 3), (b.id, 2), (later.id, 2)}


def test_it_holds_nothing_back_and_is_never_saved() -> None:
    harness = BrokerHarness()
    harness.reader(C, ready=0)
    harness.reader("durable")
    harness.put(b"a")
    harness.save()
    harness.crash()
    assert list(harness.topic().channels) == ["durable"]


def test_as_the_first_channel_it_gets_what_fits_of_what_the_topic_kept() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    harness.put(*[b"%d" % n for n in range(5)])
    harness.turn()
    assert harness.reader(C).bodies() == [b"0", b"1", b"2"]


def test_an_ephemeral_topic_keeps_mem_queue_size_messages_for_its_first_channel() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    answers = harness.put(b"a", b"b", topic=T)
    answers += harness.put(b"c", b"d", b"e", topic=T)
    harness.turn()
    topic = harness.topic(T)
    assert (topic.depth, topic.backend_depth, topic.message_count) == (3, 0, 5)
    assert harness.reader("c", T).bodies() == [b"a", b"b", b"c"]


def test_an_ephemeral_topic_ends_when_a_deletion_leaves_it_without_channels() -> None:
    harness = BrokerHarness()
    reader = harness.reader(C, T)
    harness.channel("durable", T)
    reader.leave()
    assert T in harness.broker.topics
    harness.topic(T).delete_channel("durable")
    assert T not in harness.broker.topics


def test_an_ephemeral_topic_lets_go_of_what_its_channels_are_done_with() -> None:
    harness = BrokerHarness()
    reader = harness.reader("durable", T, ready=2500)
    for _ in range(20):
        harness.put(*[b"x" * 100] * 50, topic=T)
        reader.finish(*[m.id for m in reader.read()])
    harness.save()
    assert harness.topic(T).log.queue.size == 0


def test_a_durable_channel_moves_its_log_out_of_memory_with_what_is_there() -> None:
    harness = BrokerHarness()
    harness.put(b"a", b"b", topic=T)
    harness.turn()
    harness.reader(C, T, ready=0)
    assert harness.stored() == []
    reader = harness.reader("durable", T, ready=0)
    for n in range(30):
        harness.put(b"%d" % n, topic=T)
        harness.turn()
    assert harness.stored() == [T]
    assert reader.channel.depth == 30
    reader.channel.set_ready(reader.consumer, 100)
    got = reader.read()
    assert [m.body for m in got] == [b"%d" % n for n in range(30)]
    reader.finish(*[m.id for m in got])
    harness.save()
    assert harness.topic(T).log.queue.size == 0


@pytest.mark.parametrize("end", ["clean stop", "crash"])
def test_nothing_of_it_is_left_after_a_restart(end: str) -> None:
    harness = BrokerHarness()
    harness.reader("durable", T)
    harness.put(b"a", topic=T)
    harness.turn()
    harness.save()
    harness.stop_and_start() if end == "clean stop" else harness.crash()
    assert harness.broker.topics == {}
    assert harness.stored() == []
    assert harness.reader("durable", T).bodies() == []


def test_its_name_is_free_again_once_its_storage_is_deleted() -> None:
    harness = BrokerHarness()
    harness.reader("durable", T)
    harness.put(b"a", topic=T)
    harness.turn()
    harness.topic(T).delete_channel("durable")
    with pytest.raises(Exiting):
        harness.topic(T)
    harness.save()
    assert harness.reader("durable", T).bodies() == []


def test_a_consumer_of_a_deleted_channel_that_leaves_late_does_no_harm_to_the_next_one() -> None:
    harness = BrokerHarness()
    harness.channel("keep")
    old = harness.reader(C)
    harness.topic().delete_channel(C)
    new = harness.reader(C)
    old.leave()
    harness.put(b"a")
    assert new.bodies() == [b"a"]
    assert not new.disconnected


def test_what_an_ephemeral_topic_drops_takes_no_memory() -> None:
    harness = BrokerHarness(mem_queue_size=10)
    for _ in range(20):
        harness.put(*[b"x" * 1000] * 10, topic=T)
        harness.turn()
    topic = harness.topic(T)
    assert (topic.depth, topic.message_count, topic.message_bytes) == (10, 200, 200_000)
    assert topic.log.queue.size < 11_000


def break_reading(harness: BrokerHarness, topic: str = "t") -> Callable[[], None]:
    """Let the medium of a topic fail; returns what heals it."""
    queue = harness.topic(topic).log.queue
    read = queue.read

    def fail(start: int, limit: int) -> list[Segment]:
        raise BackendError("EIO")

    queue.read = fail  # type: ignore[method-assign]
    return lambda: setattr(queue, "read", read)


def test_one_that_cannot_be_given_what_was_kept_is_not_born() -> None:
    harness = BrokerHarness()
    harness.put(b"a")
    harness.turn()
    heal = break_reading(harness)
    with pytest.raises(BackendError):
        harness.channel(C)
    heal()
    assert harness.topic().channels == {}
    assert harness.reader("durable").bodies() == [b"a"]


def test_a_topic_whose_ephemeral_channel_cannot_be_given_what_was_kept_stays_paused() -> None:
    harness = BrokerHarness()
    fleeting, durable = harness.reader(C), harness.reader("durable")
    harness.topic().pause()
    harness.put(b"a")
    harness.turn()
    heal = break_reading(harness)
    with pytest.raises(BackendError):
        harness.topic().unpause(harness.now)
    heal()
    assert harness.topic().paused
    harness.topic().unpause(harness.now)
    assert (fleeting.bodies(), durable.bodies()) == ([b"a"], [b"a"])


def test_it_gets_what_was_kept_also_from_the_middle_of_a_block() -> None:
    harness = BrokerHarness()
    harness.broker._cache.limit = 0
    durable = harness.reader("durable", ready=0)
    harness.put(b"old1")
    harness.turn()
    harness.put(b"old2")
    harness.turn()
    harness.topic().pause()
    fleeting = harness.reader(C)
    harness.put(b"kept")
    harness.turn()
    durable.channel.set_ready(durable.consumer, 1)
    assert durable.bodies() == [b"old1"]
    harness.topic().unpause(harness.now)
    assert fleeting.bodies() == [b"kept"]
