"""What nsqd.dat names and the saved state does not know: topics an nsqd left, or those of a lost positions.db."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from tests.core.world import World

C, D = NamedChannel("c"), NamedChannel("d")


def names(world: World) -> dict[str, list[str]]:
    """The topics there are and their channels."""
    return {name: list(topic.channels) for name, topic in world.broker.topics.items()}


# -- never saved


def test_topics_and_channels_are_made_paused_as_they_were() -> None:
    world = World()
    world.crash(named=[NamedTopic("a", True, (NamedChannel("c", True), D)), NamedTopic("b")])
    assert names(world) == {"a": ["c", "d"], "b": []}
    topic = world.topic("a")
    assert (topic.paused, world.topic("b").paused) == (True, False)
    assert [channel.paused for channel in topic.channels.values()] == [True, False]


def test_they_are_saved_with_the_next_cut() -> None:
    world = World()
    world.crash(named=[NamedTopic("a", True, (NamedChannel("c", True),))])
    world.save()
    world.crash()
    assert names(world) == {"a": ["c"]}
    assert world.topic("a").paused
    assert world.channel("c", "a").paused


def test_a_topic_made_paused_keeps_its_messages_until_it_is_not() -> None:
    world = World()
    world.crash(named=[NamedTopic("t", True, (C,))])
    world.put(b"a")
    reader = world.reader()
    assert reader.bodies() == []
    world.topic().unpause(world.now)
    assert reader.bodies() == [b"a"]


def test_every_channel_made_gets_what_is_published_from_then_on() -> None:
    world = World()
    world.crash(named=[NamedTopic("t", channels=(C, D))])
    world.put(b"a", b"b")
    world.turn()
    world.crash(named=[NamedTopic("t", channels=(C, D))])  # before anything of it was saved
    assert (world.reader("c").bodies(), world.reader("d").bodies()) == ([b"a", b"b"], [b"a", b"b"])


def test_the_operator_is_told_of_them() -> None:
    world = World()
    world.crash(named=[NamedTopic("t", channels=(C,))])
    assert world.lines == [("info", "TOPIC(t): created"), ("info", "TOPIC(t): new channel(c)")]


# -- beside what was saved


def test_what_was_saved_keeps_its_own_state() -> None:
    world = World()
    reader = world.reader()
    world.put(b"a", b"b")
    message = reader.read()[0]
    reader.finish(message.id)
    world.save()
    world.crash(named=[NamedTopic("t", True, (NamedChannel("c", True),))])
    assert not world.topic().paused
    assert not world.channel().paused
    assert world.reader().bodies() == [b"b"]


def test_a_channel_that_was_not_saved_starts_where_a_new_one_does() -> None:
    world = World()
    world.channel("c")
    world.put(b"a")
    world.turn()
    world.save()
    world.crash(named=[NamedTopic("t", channels=(C, D))])
    world.put(b"b")
    assert world.reader("d").bodies() == [b"b"]
    assert world.reader("c").bodies() == [b"a", b"b"]


def test_the_first_channel_of_a_topic_gets_what_it_kept() -> None:
    world = World()
    world.put(b"a")
    world.turn()
    world.save()
    world.crash(named=[NamedTopic("t", channels=(C, D))])
    assert (world.reader("c").bodies(), world.reader("d").bodies()) == ([b"a"], [b"a"])
    assert world.topic().depth == 0


def test_a_channel_deleted_shortly_before_a_crash_may_come_back_empty() -> None:
    world = World()
    world.channel("c")
    world.channel("d")
    world.put(b"a")
    world.turn()
    stale = world.broker.metadata_sync.names()
    world.topic().delete_channel("d")
    world.save()
    world.crash(named=stale)
    assert (world.channel("c").depth, world.channel("d").depth) == (1, 0)


# -- when positions are lost


def test_all_named_channels_start_at_the_oldest_message_kept() -> None:
    world = World()
    reader = world.reader()
    world.put(b"a", b"b")
    reader.finish(*(message.id for message in reader.read()))
    world.put(b"c")
    world.turn()
    world.lose_positions(NamedTopic("t", channels=(C, D)))
    topic = world.topic()
    assert (topic.depth, [channel.depth for channel in topic.channels.values()]) == (0, [3, 3])
    assert (world.reader("c").bodies(), world.reader("d").bodies()) == ([b"a", b"b", b"c"], [b"a", b"b", b"c"])
    assert [channel.depth for channel in topic.channels.values()] == [0, 0]


def test_a_deferred_message_waits_for_what_is_left_of_its_delay() -> None:
    world = World()
    world.channel()
    world.put(b"late", delay_ms=5000)
    world.put(b"now")
    world.turn()
    world.wait(2)
    world.lose_positions(NamedTopic("t", channels=(C,)))
    assert (world.channel().depth, world.channel().deferred_count) == (1, 1)
    reader = world.reader()
    assert reader.bodies() == [b"now"]
    world.wait(2.9)
    assert reader.bodies() == []
    world.wait(0.2)
    assert reader.bodies() == [b"late"]


def test_a_paused_topic_keeps_all_of_it() -> None:
    world = World()
    world.channel()
    world.put(b"a")
    world.turn()
    world.lose_positions(NamedTopic("t", True, (C,)))
    reader = world.reader()
    assert (reader.bodies(), world.topic().depth) == ([], 1)
    world.topic().unpause(world.now)
    assert reader.bodies() == [b"a"]


def test_a_topic_nobody_names_keeps_its_messages_for_its_first_channel() -> None:
    world = World()
    world.put(b"a")
    world.turn()
    world.lose_positions()
    assert (names(world), world.topic().depth) == ({"t": []}, 1)
    assert world.reader().bodies() == [b"a"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_unfinished_message_is_lost_to_a_named_channel(data: st.DataObject) -> None:
    """Whatever was published, finished, requeued, saved or trimmed before."""
    world = World(mem_queue_size=2)
    readers = {name: world.reader(name, ready=3) for name in ("c", "d")}
    unfinished: dict[str, set[bytes]] = {name: set() for name in readers}
    for number in range(data.draw(st.integers(1, 12), "rounds")):
        body = str(number).encode()
        world.put(body, delay_ms=data.draw(st.sampled_from([0, 0, 1000]), "delay"))
        for name, reader in readers.items():
            unfinished[name].add(body)
            for message in reader.read():
                if data.draw(st.booleans(), "finish"):
                    reader.finish(message.id)
                    unfinished[name].discard(message.body)
                elif data.draw(st.booleans(), "requeue"):
                    reader.requeue(message.id, 1.0)
        if data.draw(st.booleans(), "save"):
            world.save()
    world.lose_positions(*world.broker.metadata_sync.names())
    for name, bodies in unfinished.items():
        reader = world.reader(name)
        got = set(reader.bodies())
        world.wait(2)
        assert bodies <= got | set(reader.bodies())


# -- ephemeral ones


def test_ephemeral_topics_are_made_as_they_are_found() -> None:
    world = World()
    world.crash(named=[NamedTopic("e#ephemeral", True, (NamedChannel("c#ephemeral", True), D))])
    assert names(world) == {"e#ephemeral": ["c#ephemeral", "d"]}
    topic = world.topic("e#ephemeral")
    assert topic.paused
    assert [channel.paused for channel in topic.channels.values()] == [True, False]
    assert world.broker.metadata_sync.names() == ()


@pytest.mark.parametrize("saved", [False, True])
def test_an_ephemeral_channel_of_a_lasting_topic_is_made(saved: bool) -> None:
    world = World()
    if saved:
        world.channel("c")
        world.save()
    world.crash(named=[NamedTopic("t", channels=(C, NamedChannel("x#ephemeral", True), NamedChannel("y#ephemeral")))])
    assert names(world) == {"t": ["c", "x#ephemeral", "y#ephemeral"]}
    assert [channel.paused for channel in world.topic().channels.values()] == [False, True, False]
    world.put(b"a")
    assert world.reader("y#ephemeral").bodies() == [b"a"]
