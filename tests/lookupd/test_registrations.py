"""The registrations, in short dialogues (suite specification 1.4, 1.5, 6)."""

from __future__ import annotations

import pytest

from nsqtw.errors import CapReached
from nsqtw.lookupd.registrations import NEVER_TOMBSTONED, Key
from tests.lookupd.world import INACTIVE_AFTER, SECOND, TOMBSTONE, World


def test_a_channel_is_registered_with_its_topic() -> None:
    world = World()
    nsqd = world.identify("a")
    assert world.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c"), Key("topic", "t")]
    assert world.registrations.register(nsqd, "t", "c") == []
    assert world.registrations.register(nsqd, "t", "d") == [Key("channel", "t", "d")]
    assert world.registrations.register(nsqd, "u", "") == [Key("topic", "u")]
    assert world.registrations.topics() == ["t", "u"]
    assert world.registrations.channels("t") == ["c", "d"]
    assert world.registrations.channels("u") == world.registrations.channels("unknown") == []
    assert world.found("t") == world.found("u") == ["a"]
    assert world.found("unknown") is None
    assert world.topics_of() == {"a": ["t", "u"]}


def test_an_unregistered_channel_keeps_its_key_and_its_topic() -> None:
    world = World()
    nsqd = world.nsqd("t/c", "t/e#ephemeral")
    assert world.registrations.unregister(nsqd, "t", "c") == [Key("channel", "t", "c")]
    assert world.registrations.unregister(nsqd, "t", "c") == []
    assert world.registrations.channels("t") == ["c", "e#ephemeral"]
    world.registrations.unregister(nsqd, "t", "e#ephemeral")
    assert world.registrations.channels("t") == ["c"]
    assert world.found("t") == ["n1"]


def test_an_ephemeral_channel_stays_while_another_has_it() -> None:
    world = World()
    one, other = world.nsqd("t/e#ephemeral"), world.nsqd("t/e#ephemeral")
    world.registrations.unregister(one, "t", "e#ephemeral")
    assert world.registrations.channels("t") == ["e#ephemeral"]
    world.registrations.unregister(other, "t", "e#ephemeral")
    assert world.registrations.channels("t") == []


def test_an_ephemeral_topic_stays_while_another_has_it() -> None:
    world = World()
    one, other = world.nsqd("t#ephemeral", name="a"), world.nsqd("t#ephemeral", name="b")
    world.registrations.unregister(one, "t#ephemeral")
    assert world.found("t#ephemeral") == ["b"]
    world.registrations.unregister(other, "t#ephemeral")
    assert world.found("t#ephemeral") is None


def test_an_unregistered_topic_takes_its_channels_along_but_not_their_keys() -> None:
    world = World()
    nsqd = world.nsqd("t/c", "e#ephemeral/c#ephemeral")
    keys = [Key("channel", "e#ephemeral", "c#ephemeral"), Key("topic", "e#ephemeral")]
    assert world.registrations.unregister(nsqd, "e#ephemeral") == keys
    assert world.registrations.topics() == ["t"]
    assert world.registrations.channels("e#ephemeral") == ["c#ephemeral"]
    assert world.found("e#ephemeral") is None
    world.registrations.unregister(nsqd, "t")
    assert world.registrations.topics() == ["t"]
    assert world.registrations.channels("t") == ["c"]
    assert world.found("t") == []
    assert world.topics_of() == {"n1": []}


def test_who_never_registered_can_end_what_is_ephemeral_and_empty() -> None:
    """nsqlookupd looks only at how many producers are left."""
    world = World()
    world.registrations.create_channel("t#ephemeral", "c#ephemeral")
    nsqd = world.identify()
    assert world.registrations.unregister(nsqd, "t#ephemeral", "c#ephemeral") == []
    assert world.registrations.channels("t#ephemeral") == []
    assert world.registrations.unregister(nsqd, "t#ephemeral") == []
    assert world.registrations.topics() == []
    assert world.registrations.topic_count == world.registrations.channel_count == 0


def test_a_disconnected_producer_leaves_all_keys() -> None:
    world = World()
    nsqd = world.nsqd("t/c", "e#ephemeral/c#ephemeral")
    assert world.registrations.gone(nsqd) == [
        Key("client"),
        Key("channel", "t", "c"),
        Key("topic", "t"),
        Key("channel", "e#ephemeral", "c#ephemeral"),
        Key("topic", "e#ephemeral"),
    ]
    assert world.registrations.gone(nsqd) == []
    assert world.registrations.topics() == ["t", "e#ephemeral"]
    assert world.registrations.channels("*") == ["c", "c#ephemeral"]
    assert world.found("t") == []
    assert world.topics_of() == {}
    assert world.registrations.debug() == {}


def test_who_is_silent_too_long_is_not_shown_until_it_pings() -> None:
    world = World()
    nsqd = world.nsqd("t")
    world.wait(300)
    assert world.found("t") == ["n1"]
    world.wait(0.000000001)
    assert world.found("t") == []
    assert world.topics_of() == {}
    assert list(world.registrations.debug()) == ["client::", "topic:t:"]
    world.registrations.touch(nsqd, world.now)
    assert world.found("t") == ["n1"]
    assert world.topics_of() == {"n1": ["t"]}


def test_a_ping_before_identify_means_nothing() -> None:
    world = World()
    world.registrations.touch(7, world.now)
    assert world.registrations.nodes(world.now) == []


def test_a_tombstone_hides_from_lookups_of_one_topic_for_its_lifetime() -> None:
    world = World()
    world.nsqd("t/c", "u", name="a")
    world.nsqd("t/c", name="b")
    world.registrations.tombstone("t", "a:4151", world.now)
    world.registrations.tombstone("t", "nobody:1", world.now)
    assert (world.found("t"), world.found("u")) == (["b"], ["a"])
    assert world.topics_of() == {"a": ["t +", "u"], "b": ["t"]}
    world.wait(45)
    assert world.found("t") == ["a", "b"]
    assert world.topics_of() == {"a": ["t", "u"], "b": ["t"]}


def test_a_tombstone_is_lifted_by_a_new_registration_not_by_a_repeated_one() -> None:
    world = World()
    nsqd = world.nsqd("t/c", name="a")
    world.registrations.tombstone("t", "a:4151", world.now)
    world.registrations.register(nsqd, "t", "c")
    assert world.found("t") == []
    world.registrations.unregister(nsqd, "t", "c")
    world.registrations.register(nsqd, "t", "c")
    assert world.found("t") == []
    world.registrations.unregister(nsqd, "t")
    world.registrations.register(nsqd, "t", "c")
    assert world.found("t") == ["a"]


def test_a_reconnect_lifts_a_tombstone() -> None:
    world = World()
    nsqd = world.nsqd("t", name="a")
    world.registrations.tombstone("t", "a:4151", world.now)
    again = world.nsqd("t", name="a")
    assert world.found("t") == ["a"]
    world.registrations.gone(nsqd)
    assert world.found("t") == ["a"]
    world.registrations.gone(again)
    assert world.found("t") == []


def test_created_topics_and_channels_have_no_producers() -> None:
    world = World()
    world.registrations.create_topic("t")
    world.registrations.create_channel("u", "c")
    world.registrations.create_channel("u", "c")
    assert world.registrations.topics() == ["t", "u"]
    assert (world.found("t"), world.found("u")) == ([], [])
    assert world.registrations.channels("u") == ["c"]
    assert world.registrations.debug() == {}


def test_a_deleted_topic_takes_channels_and_registrations_along() -> None:
    world = World()
    nsqd = world.nsqd("t/c", "t/d", "u")
    keys = [Key("channel", "t", "c"), Key("channel", "t", "d"), Key("topic", "t")]
    assert world.registrations.delete_topic("t") == keys
    assert world.registrations.delete_topic("t") == []
    assert world.registrations.topics() == ["u"]
    assert world.topics_of() == {"n1": ["u"]}
    assert world.registrations.registration_count == 1
    assert world.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c"), Key("topic", "t")]


def test_a_deleted_channel() -> None:
    world = World()
    world.nsqd("t/c", "t/d")
    assert world.registrations.delete_channel("t", "c")
    assert not world.registrations.delete_channel("t", "c")
    assert not world.registrations.delete_channel("x", "c")
    assert world.registrations.channels("t") == ["d"]
    assert world.found("t") == ["n1"]
    assert world.registrations.registration_count == 2


def test_a_star_is_every_topic() -> None:
    world = World()
    assert world.found("*") is None
    world.nsqd("t/c", "u/c", name="a")
    world.nsqd("u/d", name="b")
    assert world.found("*") == ["a", "b"]
    assert world.registrations.channels("*") == ["c", "c", "d"]
    world.registrations.tombstone("t", "a:4151", world.now)
    assert world.found("*") == ["a", "b"]
    world.registrations.tombstone("*", "a:4151", world.now)
    assert world.found("*") == ["b"]
    assert len(world.registrations.delete_topic("*")) == 5
    assert world.registrations.topics() == []
    assert world.found("*") is None


def test_debug_shows_every_entry_and_its_tombstone_after_its_end() -> None:
    world = World()
    world.nsqd("t/c", name="a")
    world.registrations.tombstone("t", "a:4151", world.now)
    tombstoned_at = world.now
    world.wait(TOMBSTONE / SECOND)
    debug = world.registrations.debug()
    assert list(debug) == ["channel:t:c", "client::", "topic:t:"]
    plain = {
        "broadcast_address": "a",
        "hostname": "a.host",
        "http_port": 4151,
        "id": "10.0.0.1:40001",
        "last_update": tombstoned_at,
        "tcp_port": 4150,
        "tombstoned": False,
        "tombstoned_at": NEVER_TOMBSTONED,
        "topology_region": "",
        "topology_zone": "",
        "version": "1.3.0",
    }
    assert debug["client::"] == debug["channel:t:c"] == [plain]
    assert debug["topic:t:"] == [{**plain, "tombstoned": True, "tombstoned_at": tombstoned_at}]


def test_no_more_topics_and_channels_than_there_may_be() -> None:
    world = World(topics=2, channels=1)
    nsqd = world.nsqd("t", "u")
    with pytest.raises(CapReached, match="topics exceed limit of 2"):
        world.registrations.register(nsqd, "v")
    with pytest.raises(CapReached):
        world.registrations.create_topic("v")
    world.registrations.create_channel("t", "c")
    with pytest.raises(CapReached, match="channels exceed limit of 1"):
        world.registrations.register(nsqd, "t", "d")
    with pytest.raises(CapReached):
        world.registrations.create_channel("v", "d")
    assert world.registrations.topics() == ["t", "u"]
    assert world.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c")]
    world.registrations.delete_topic("t")
    world.registrations.create_channel("v", "d")


def test_one_producer_cannot_take_what_all_may_have() -> None:
    world = World(registrations=5, producer_registrations=3)
    one, other = world.nsqd("t/c"), world.nsqd("t/c")
    with pytest.raises(CapReached, match="registrations of one producer exceed limit of 3"):
        world.registrations.register(one, "u", "c")
    assert world.registrations.topics() == ["t"]
    world.registrations.register(one, "u")
    with pytest.raises(CapReached, match="registrations exceed limit of 5"):
        world.registrations.register(other, "v")
    world.registrations.gone(one)
    world.registrations.register(other, "v")
    assert world.registrations.registration_count == 3


def test_inactive_timeout_is_of_the_last_sign() -> None:
    world = World()
    nsqd = world.nsqd("t")
    for _ in range(3):
        world.wait(INACTIVE_AFTER / SECOND)
        world.registrations.touch(nsqd, world.now)
    assert world.found("t") == ["n1"]
