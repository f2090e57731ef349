"""What nsqd.dat names and the saved state does not know: topics an nsqd left, or those of a lost positions.db."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from tests.core.harness import BrokerHarness

C, D = NamedChannel("c"), NamedChannel("d")


def names(harness: BrokerHarness) -> dict[str, list[str]]:
    """The topics there are and their channels."""
    return {name: list(topic.channels) for name, topic in harness.broker.topics.items()}


# -- never saved


def test_topics_and_channels_are_made_paused_as_they_were() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("a", True, (NamedChannel("c", True), D)), NamedTopic("b")])
    assert names(harness) == {"a": ["c", "d"], "b": []}
    topic = harness.topic("a")
    assert (topic.paused, harness.topic("b").paused) == (True, False)
    assert [channel.paused for channel in topic.channels.values()] == [True, False]


def test_they_are_saved_with_the_next_cut() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("a", True, (NamedChannel("c", True),))])
    harness.save()
    harness.crash()
    assert names(harness) == {"a": ["c"]}
    assert harness.topic("a").paused
    assert harness.channel("c", "a").paused


def test_a_topic_made_paused_keeps_its_messages_until_it_is_not() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("t", True, (C,))])
    harness.put(b"a")
    reader = harness.reader()
    assert reader.bodies() == []
    harness.topic().unpause(harness.now)
    assert reader.bodies() == [b"a"]


def test_every_channel_made_gets_what_is_published_from_then_on() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("t", channels=(C, D))])
    harness.put(b"a", b"b")
    harness.turn()
    harness.crash(named=[NamedTopic("t", channels=(C, D))])  # before anything of it was saved
    assert (harness.reader("c").bodies(), harness.reader("d").bodies()) == ([b"a", b"b"], [b"a", b"b"])


def test_the_operator_is_told_of_them() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("t", channels=(C,))])
    assert harness.lines == [("info", "TOPIC(t): created"), ("info", "TOPIC(t): new channel(c)")]


# -- beside what was saved


def test_what_was_saved_keeps_its_own_state() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a", b"b")
    message = reader.read()[0]
    reader.finish(message.id)
    harness.save()
    harness.crash(named=[NamedTopic("t", True, (NamedChannel("c", True),))])
    assert not harness.topic().paused
    assert not harness.channel().paused
    assert harness.reader().bodies() == [b"b"]


def test_a_channel_that_was_not_saved_starts_where_a_new_one_does() -> None:
    harness = BrokerHarness()
    harness.channel("c")
    harness.put(b"a")
    harness.turn()
    harness.save()
    harness.crash(named=[NamedTopic("t", channels=(C, D))])
    harness.put(b"b")
    assert harness.reader("d").bodies() == [b"b"]
    assert harness.reader("c").bodies() == [b"a", b"b"]


def test_the_first_channel_of_a_topic_gets_what_it_kept() -> None:
    harness = BrokerHarness()
    harness.put(b"a")
    harness.turn()
    harness.save()
    harness.crash(named=[NamedTopic("t", channels=(C, D))])
    assert (harness.reader("c").bodies(), harness.reader("d").bodies()) == ([b"a"], [b"a"])
    assert harness.topic().depth == 0


def test_a_channel_deleted_shortly_before_a_crash_may_come_back_empty() -> None:
    harness = BrokerHarness()
    harness.channel("c")
    harness.channel("d")
    harness.put(b"a")
    harness.turn()
    stale = harness.broker.metadata_sync.names()
    harness.topic().delete_channel("d")
    harness.save()
    harness.crash(named=stale)
    assert (harness.channel("c").depth, harness.channel("d").depth) == (1, 0)


# -- when positions are lost


def test_all_named_channels_start_at_the_oldest_message_kept() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a", b"b")
    reader.finish(*(message.id for message in reader.read()))
    harness.put(b"c")
    harness.turn()
    harness.lose_positions(NamedTopic("t", channels=(C, D)))
    topic = harness.topic()
    assert (topic.depth, [channel.depth for channel in topic.channels.values()]) == (0, [3, 3])
    assert (harness.reader("c").bodies(), harness.reader("d").bodies()) == ([b"a", b"b", b"c"], [b"a", b"b", b"c"])
    assert [channel.depth for channel in topic.channels.values()] == [0, 0]


def test_a_deferred_message_waits_for_what_is_left_of_its_delay() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"late", delay_ms=5000)
    harness.put(b"now")
    harness.turn()
    harness.wait(2)
    harness.lose_positions(NamedTopic("t", channels=(C,)))
    assert (harness.channel().depth, harness.channel().deferred_count) == (1, 1)
    reader = harness.reader()
    assert reader.bodies() == [b"now"]
    harness.wait(2.9)
    assert reader.bodies() == []
    harness.wait(0.2)
    assert reader.bodies() == [b"late"]


def test_a_paused_topic_keeps_all_of_it() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"a")
    harness.turn()
    harness.lose_positions(NamedTopic("t", True, (C,)))
    reader = harness.reader()
    assert (reader.bodies(), harness.topic().depth) == ([], 1)
    harness.topic().unpause(harness.now)
    assert reader.bodies() == [b"a"]


def test_a_topic_nobody_names_keeps_its_messages_for_its_first_channel() -> None:
    harness = BrokerHarness()
    harness.put(b"a")
    harness.turn()
    harness.lose_positions()
    assert (names(harness), harness.topic().depth) == ({"t": []}, 1)
    assert harness.reader().bodies() == [b"a"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_unfinished_message_is_lost_to_a_named_channel(data: st.DataObject) -> None:
    """Whatever was published, finished, requeued, saved or trimmed before."""
    harness = BrokerHarness(mem_queue_size=2)
    readers = {name: harness.reader(name, ready=3) for name in ("c", "d")}
    unfinished: dict[str, set[bytes]] = {name: set() for name in readers}
    for number in range(data.draw(st.integers(1, 12), "rounds")):
        body = str(number).encode()
        harness.put(body, delay_ms=data.draw(st.sampled_from([0, 0, 1000]), "delay"))
        for name, reader in readers.items():
            unfinished[name].add(body)
            for message in reader.read():
                if data.draw(st.booleans(), "finish"):
                    reader.finish(message.id)
                    unfinished[name].discard(message.body)
                elif data.draw(st.booleans(), "requeue"):
                    reader.requeue(message.id, 1.0)
        if data.draw(st.booleans(), "save"):
            harness.save()
    harness.lose_positions(*harness.broker.metadata_sync.names())
    for name, bodies in unfinished.items():
        reader = harness.reader(name)
        got = set(reader.bodies())
        harness.wait(2)
        assert bodies <= got | set(reader.bodies())


# -- ephemeral ones


def test_ephemeral_topics_are_made_as_they_are_found() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("e#ephemeral", True, (NamedChannel("c#ephemeral", True), D))])
    assert names(harness) == {"e#ephemeral": ["c#ephemeral", "d"]}
    topic = harness.topic("e#ephemeral")
    assert topic.paused
    assert [channel.paused for channel in topic.channels.values()] == [True, False]
    assert harness.broker.metadata_sync.names() == ()


@pytest.mark.parametrize("saved", [False, True])
def test_an_ephemeral_channel_of_a_lasting_topic_is_made(saved: bool) -> None:
    harness = BrokerHarness()
    if saved:
        harness.channel("c")
        harness.save()
    harness.crash(named=[NamedTopic("t", channels=(C, NamedChannel("x#ephemeral", True), NamedChannel("y#ephemeral")))])
    assert names(harness) == {"t": ["c", "x#ephemeral", "y#ephemeral"]}
    assert [channel.paused for channel in harness.topic().channels.values()] == [False, True, False]
    harness.put(b"a")
    assert harness.reader("y#ephemeral").bodies() == [b"a"]
