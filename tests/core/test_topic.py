"""Topics: what channels may see, and when."""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError, Exiting
from tests.core.world import World


def test_nothing_is_visible_before_it_is_committed() -> None:
    world = World()
    reader = world.reader()
    answers = world.put(b"a")
    assert (answers, world.topic().depth, reader.channel.depth) == ([], 0, 0)
    world.turn()
    assert (answers, reader.bodies()) == ([None], [b"a"])


def test_a_publish_whose_commit_fails_is_answered_with_the_error_and_never_delivered() -> None:
    world = World()
    reader = world.reader()
    world.put(b"before")
    world.turn()
    commit = world.backend.commit
    world.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    answers, more_answers = world.put(b"lost"), world.put(b"lost too")
    world.turn()
    assert [str(answer) for answer in answers + more_answers] == ["no space", "no space"]
    assert str(world.broker.health) == "NOK - no space"
    world.backend.commit = commit
    world.put(b"after")
    assert reader.bodies() == [b"before", b"after"]
    assert str(world.broker.health) == "OK"
    world.save()
    world.crash()
    assert world.reader().bodies() == [b"before", b"after"]


def test_the_first_channel_gets_what_the_topic_kept_a_later_one_does_not() -> None:
    world = World()
    world.put(b"a", b"b")
    world.turn()
    assert world.topic().depth == 2
    assert world.reader("first").bodies() == [b"a", b"b"]
    assert world.reader("second").bodies() == []
    assert world.topic().depth == 0


def test_a_paused_topic_keeps_messages_and_a_channel_born_meanwhile_gets_them() -> None:
    world = World()
    old = world.reader("old")
    world.put(b"1")
    world.turn()
    world.topic().pause()
    world.put(b"2")
    world.turn()
    new = world.reader("new")
    assert (old.bodies(), new.bodies(), world.topic().depth) == ([b"1"], [], 1)
    world.topic().unpause(world.now)
    assert (old.bodies(), new.bodies(), world.topic().depth) == ([b"2"], [b"2"], 0)


def test_emptying_a_paused_topic_drops_what_waits_and_leaves_channels_alone() -> None:
    world = World()
    reader = world.reader(ready=0)
    world.put(b"1")
    world.turn()
    world.topic().pause()
    world.put(b"2", b"3")
    world.put(b"4", delay_ms=1)
    world.turn()
    world.topic().empty()
    assert (world.topic().depth, reader.channel.depth) == (0, 1)
    world.topic().unpause(world.now)
    world.put(b"5")
    world.turn()
    reader.channel.set_ready(reader.consumer, 10)
    assert reader.bodies() == [b"1", b"5"]
    assert (reader.channel.depth, reader.channel.message_count) == (0, 2)


def test_a_dropped_range_stays_dropped_where_reading_joins_small_segments() -> None:
    world = World()
    world.channel()
    world.put(b"1")
    world.turn()
    world.topic().pause()
    world.put(b"2")
    world.turn()
    world.topic().empty()
    world.stop_and_start()
    world.put(b"3")
    world.turn()
    world.topic().unpause(world.now)
    assert world.reader().bodies() == [b"1", b"3"]


def test_a_cursor_that_passed_a_dropped_range_is_saved_with_it() -> None:
    world = World()
    reader = world.reader(ready=1)
    world.put(b"a")
    (a,) = reader.read()
    world.topic().pause()
    world.put(b"dropped1", b"dropped2")
    world.turn()
    world.topic().empty()
    reader.requeue(a.id)
    world.save()
    world.topic().unpause(world.now)
    world.save()
    world.crash()
    reader = world.reader()
    assert reader.bodies() == [b"a"]
    world.put(b"new")
    assert reader.bodies() == [b"new"]
    assert reader.channel.depth == 0


def test_when_the_last_channel_is_gone_the_topic_keeps_messages_again() -> None:
    world = World()
    world.reader("one")
    world.turn()
    world.topic().delete_channel("one")
    world.put(b"a")
    world.turn()
    assert world.topic().depth == 1
    assert world.reader("two").bodies() == [b"a"]


def test_publishers_of_a_deleted_topic_are_told_and_its_name_is_free_once_that_is_saved() -> None:
    world = World()
    topic = world.topic()
    world.save()
    on_deleted: list[Exception | None] = []
    answers = world.put(b"a")
    world.broker.delete_topic("t", on_deleted.append)
    assert [str(answer) for answer in answers] == ["exiting"]
    late: list[Exception | None] = []
    topic.put([b"b"], 0, late.append)
    assert isinstance(late[0], Exiting)
    try:
        world.topic()
    except Exiting:
        pass
    else:
        raise AssertionError("the old topic is still being deleted")
    world.save()
    assert on_deleted == [None]
    assert world.reader().bodies() == []


def test_a_channel_deleted_and_made_again_during_a_save_is_not_saved_by_it() -> None:
    world = World()
    world.channel()
    save = world.begin_save()
    world.topic().delete_channel("c")
    channel = world.channel()
    world.broker.checkpointer.end(save, None)
    assert not channel.is_saved
    world.save()
    assert channel.is_saved


def test_ids_are_unique_over_a_deleted_topic_a_crash_and_other_topics() -> None:
    world = World()
    seen: list[bytes] = []

    def publish_and_read(topic: str) -> None:
        reader = world.reader("c", topic, ready=2500)
        world.put(*[b"x"] * 50, topic=topic)
        got = [m.id for m in reader.read()]
        reader.finish(*got)
        reader.leave()
        seen.extend(got)

    publish_and_read("t")
    publish_and_read("u")
    world.save()
    world.broker.delete_topic("t")
    world.save()
    publish_and_read("t")
    world.save()
    world.crash()
    publish_and_read("t")
    publish_and_read("u")
    assert len(seen) == len(set(seen)) == 250


def test_a_wiped_data_path_starts_somewhere_else() -> None:
    firsts = set()
    for _ in range(5):
        world = World()
        reader = world.reader()
        world.put(b"x")
        firsts.add(reader.read()[0].id)
    assert len(firsts) == 5


def test_a_block_of_sequences_that_is_full_is_followed_by_another() -> None:
    world = World()
    topic = world.topic()
    reader = world.reader(ready=100)
    world.put(b"a")
    world.turn()
    topic._publish_buffer._next_sequence = topic._publish_buffer._block_end - 1
    world.put(b"b")
    world.turn()
    world.put(b"c", b"d")
    assert reader.bodies() == [b"a", b"b", b"c", b"d"]
    assert reader.channel.depth == 0


def test_depth_and_backend_depth_count_messages() -> None:
    world = World(mem_queue_size=10)
    world.put(*[b"x"] * 25)
    world.turn()
    assert (world.topic().depth, world.topic().backend_depth) == (25, 15)
    channel = world.channel()
    assert (world.topic().depth, channel.depth, channel.backend_depth) == (0, 25, 15)
    assert (world.topic().message_count, world.topic().message_bytes, channel.message_count) == (25, 25, 25)


def test_messages_of_different_sizes_and_a_large_one_keep_their_order() -> None:
    world = World()
    reader = world.reader(ready=2500)
    bodies = [bytes([n % 256]) * (1 + n * 37 % 5000) for n in range(300)] + [b"z" * 900_000, b"end"]
    world.put(*bodies)
    assert reader.bodies() == bodies


def test_a_class_given_while_the_broker_ran_is_kept_over_restarts() -> None:
    world = World()
    world.topic().set_durability("fsync")
    world.topic("other")
    world.save()
    world.crash()
    assert (world.topic().durability, world.topic("other").durability) == ("fsync", "os")
    world.topic().set_durability("")
    world.stop_and_start()
    assert world.topic().durability == "os"


def test_what_class_memory_owes_is_stored_before_the_class_changes() -> None:
    world = World(durability="memory")
    world.put(b"a")
    world.turn()
    commit = world.backend.commit
    world.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    with pytest.raises(BackendError, match="no space"):
        world.topic().set_durability("os")
    assert world.topic().durability == "memory"
    world.backend.commit = commit
    world.topic().set_durability("os")
    world.put(b"b")
    assert world.reader().bodies() == [b"a", b"b"]
    world.save()
    world.crash()
    assert world.reader().bodies() == [b"a", b"b"]
