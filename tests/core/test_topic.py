"""Topics: what channels may see, and when."""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError, Exiting
from tests.core.harness import BrokerHarness


def test_nothing_is_visible_before_it_is_committed() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    answers = harness.put(b"a")
    assert (answers, harness.topic().depth, reader.channel.depth) == ([], 0, 0)
    harness.turn()
    assert (answers, reader.bodies()) == ([None], [b"a"])


def test_a_publish_whose_commit_fails_is_answered_with_the_error_and_never_delivered() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"before")
    harness.turn()
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    answers, more_answers = harness.put(b"lost"), harness.put(b"lost too")
    harness.turn()
    assert [str(answer) for answer in answers + more_answers] == ["no space", "no space"]
    assert str(harness.broker.health) == "NOK - no space"
    harness.backend.commit = commit
    harness.put(b"after")
    assert reader.bodies() == [b"before", b"after"]
    assert str(harness.broker.health) == "OK"
    harness.save()
    harness.crash()
    assert harness.reader().bodies() == [b"before", b"after"]


def test_the_first_channel_gets_what_the_topic_kept_a_later_one_does_not() -> None:
    harness = BrokerHarness()
    harness.put(b"a", b"b")
    harness.turn()
    assert harness.topic().depth == 2
    assert harness.reader("first").bodies() == [b"a", b"b"]
    assert harness.reader("second").bodies() == []
    assert harness.topic().depth == 0


def test_a_paused_topic_keeps_messages_and_a_channel_born_meanwhile_gets_them() -> None:
    harness = BrokerHarness()
    old = harness.reader("old")
    harness.put(b"1")
    harness.turn()
    harness.topic().pause()
    harness.put(b"2")
    harness.turn()
    new = harness.reader("new")
    assert (old.bodies(), new.bodies(), harness.topic().depth) == ([b"1"], [], 1)
    harness.topic().unpause(harness.now)
    assert (old.bodies(), new.bodies(), harness.topic().depth) == ([b"2"], [b"2"], 0)


def test_emptying_a_paused_topic_drops_what_waits_and_leaves_channels_alone() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=0)
    harness.put(b"1")
    harness.turn()
    harness.topic().pause()
    harness.put(b"2", b"3")
    harness.put(b"4", delay_ms=1)
    harness.turn()
    harness.topic().empty()
    assert (harness.topic().depth, reader.channel.depth) == (0, 1)
    harness.topic().unpause(harness.now)
    harness.put(b"5")
    harness.turn()
    reader.channel.set_ready(reader.consumer, 10)
    assert reader.bodies() == [b"1", b"5"]
    assert (reader.channel.depth, reader.channel.message_count) == (0, 2)


def test_a_dropped_range_stays_dropped_where_reading_joins_small_segments() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"1")
    harness.turn()
    harness.topic().pause()
    harness.put(b"2")
    harness.turn()
    harness.topic().empty()
    harness.stop_and_start()
    harness.put(b"3")
    harness.turn()
    harness.topic().unpause(harness.now)
    assert harness.reader().bodies() == [b"1", b"3"]


def test_a_cursor_that_passed_a_dropped_range_is_saved_with_it() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=1)
    harness.put(b"a")
    (a,) = reader.read()
    harness.topic().pause()
    harness.put(b"dropped1", b"dropped2")
    harness.turn()
    harness.topic().empty()
    reader.requeue(a.id)
    harness.save()
    harness.topic().unpause(harness.now)
    harness.save()
    harness.crash()
    reader = harness.reader()
    assert reader.bodies() == [b"a"]
    harness.put(b"new")
    assert reader.bodies() == [b"new"]
    assert reader.channel.depth == 0


def test_when_the_last_channel_is_gone_the_topic_keeps_messages_again() -> None:
    harness = BrokerHarness()
    harness.reader("one")
    harness.turn()
    harness.topic().delete_channel("one")
    harness.put(b"a")
    harness.turn()
    assert harness.topic().depth == 1
    assert harness.reader("two").bodies() == [b"a"]


def test_publishers_of_a_deleted_topic_are_told_and_its_name_is_free_once_that_is_saved() -> None:
    harness = BrokerHarness()
    topic = harness.topic()
    harness.save()
    on_deleted: list[Exception | None] = []
    answers = harness.put(b"a")
    harness.broker.delete_topic("t", on_deleted.append)
    assert [str(answer) for answer in answers] == ["exiting"]
    late: list[Exception | None] = []
    topic.put([b"b"], 0, late.append)
    assert isinstance(late[0], Exiting)
    try:
        harness.topic()
    except Exiting:
        pass
    else:
        raise AssertionError("the old topic is still being deleted")
    harness.save()
    assert on_deleted == [None]
    assert harness.reader().bodies() == []


def test_a_channel_deleted_and_made_again_during_a_save_is_not_saved_by_it() -> None:
    harness = BrokerHarness()
    harness.channel()
    save = harness.begin_save()
    harness.topic().delete_channel("c")
    channel = harness.channel()
    harness.broker.checkpointer.end(save, None)
    assert not channel.is_saved
    harness.save()
    assert channel.is_saved


def test_ids_are_unique_over_a_deleted_topic_a_crash_and_other_topics() -> None:
    harness = BrokerHarness()
    seen: list[bytes] = []

    def publish_and_read(topic: str) -> None:
        reader = harness.reader("c", topic, ready=2500)
        harness.put(*[b"x"] * 50, topic=topic)
        got = [m.id for m in reader.read()]
        reader.finish(*got)
        reader.leave()
        seen.extend(got)

    publish_and_read("t")
    publish_and_read("u")
    harness.save()
    harness.broker.delete_topic("t")
    harness.save()
    publish_and_read("t")
    harness.save()
    harness.crash()
    publish_and_read("t")
    publish_and_read("u")
    assert len(seen) == len(set(seen)) == 250


def test_a_wiped_data_path_starts_somewhere_else() -> None:
    firsts = set()
    for _ in range(5):
        harness = BrokerHarness()
        reader = harness.reader()
        harness.put(b"x")
        firsts.add(reader.read()[0].id)
    assert len(firsts) == 5


def test_a_block_of_sequences_that_is_full_is_followed_by_another() -> None:
    harness = BrokerHarness()
    topic = harness.topic()
    reader = harness.reader(ready=100)
    harness.put(b"a")
    harness.turn()
    topic._publish_buffer._next_sequence = topic._publish_buffer._block_end - 1
    harness.put(b"b")
    harness.turn()
    harness.put(b"c", b"d")
    assert reader.bodies() == [b"a", b"b", b"c", b"d"]
    assert reader.channel.depth == 0


def test_depth_and_backend_depth_count_messages() -> None:
    harness = BrokerHarness(mem_queue_size=10)
    harness.put(*[b"x"] * 25)
    harness.turn()
    assert (harness.topic().depth, harness.topic().backend_depth) == (25, 15)
    channel = harness.channel()
    assert (harness.topic().depth, channel.depth, channel.backend_depth) == (0, 25, 15)
    assert (harness.topic().message_count, harness.topic().message_bytes, channel.message_count) == (25, 25, 25)


def test_messages_of_different_sizes_and_a_large_one_keep_their_order() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2500)
    bodies = [bytes([n % 256]) * (1 + n * 37 % 5000) for n in range(300)] + [b"z" * 900_000, b"end"]
    harness.put(*bodies)
    assert reader.bodies() == bodies


def test_a_class_given_while_the_broker_ran_is_kept_over_restarts() -> None:
    harness = BrokerHarness()
    harness.topic().set_durability("fsync")
    harness.topic("other")
    harness.save()
    harness.crash()
    assert (harness.topic().durability, harness.topic("other").durability) == ("fsync", "os")
    harness.topic().set_durability("")
    harness.stop_and_start()
    assert harness.topic().durability == "os"


def test_what_class_memory_owes_is_stored_before_the_class_changes() -> None:
    harness = BrokerHarness(durability="memory")
    harness.put(b"a")
    harness.turn()
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    with pytest.raises(BackendError, match="no space"):
        harness.topic().set_durability("os")
    assert harness.topic().durability == "memory"
    harness.backend.commit = commit
    harness.topic().set_durability("os")
    harness.put(b"b")
    assert harness.reader().bodies() == [b"a", b"b"]
    harness.save()
    harness.crash()
    assert harness.reader().bodies() == [b"a", b"b"]
