"""The registrations, in short dialogues."""

from __future__ import annotations

import pytest

from nsqtw.errors import CapReached
from nsqtw.lookupd.registrations import NEVER_TOMBSTONED, Key
from tests.lookupd.harness import INACTIVE_AFTER, SECOND, TOMBSTONE, LookupdHarness


def test_a_channel_is_registered_with_its_topic() -> None:
    harness = LookupdHarness()
    nsqd = harness.identify("a")
    assert harness.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c"), Key("topic", "t")]
    assert harness.registrations.register(nsqd, "t", "c") == []
    assert harness.registrations.register(nsqd, "t", "d") == [Key("channel", "t", "d")]
    assert harness.registrations.register(nsqd, "u", "") == [Key("topic", "u")]
    assert harness.registrations.topics() == ["t", "u"]
    assert harness.registrations.channels("t") == ["c", "d"]
    assert harness.registrations.channels("u") == harness.registrations.channels("unknown") == []
    assert harness.found("t") == harness.found("u") == ["a"]
    assert harness.found("unknown") is None
    assert harness.topics_of() == {"a": ["t", "u"]}


def test_an_unregistered_channel_keeps_its_key_and_its_topic() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t/c", "t/e#ephemeral")
    assert harness.registrations.unregister(nsqd, "t", "c") == [Key("channel", "t", "c")]
    assert harness.registrations.unregister(nsqd, "t", "c") == []
    assert harness.registrations.channels("t") == ["c", "e#ephemeral"]
    harness.registrations.unregister(nsqd, "t", "e#ephemeral")
    assert harness.registrations.channels("t") == ["c"]
    assert harness.found("t") == ["n1"]


def test_an_ephemeral_channel_stays_while_another_has_it() -> None:
    harness = LookupdHarness()
    one, other = harness.nsqd("t/e#ephemeral"), harness.nsqd("t/e#ephemeral")
    harness.registrations.unregister(one, "t", "e#ephemeral")
    assert harness.registrations.channels("t") == ["e#ephemeral"]
    harness.registrations.unregister(other, "t", "e#ephemeral")
    assert harness.registrations.channels("t") == []


def test_an_ephemeral_topic_stays_while_another_has_it() -> None:
    harness = LookupdHarness()
    one, other = harness.nsqd("t#ephemeral", name="a"), harness.nsqd("t#ephemeral", name="b")
    harness.registrations.unregister(one, "t#ephemeral")
    assert harness.found("t#ephemeral") == ["b"]
    harness.registrations.unregister(other, "t#ephemeral")
    assert harness.found("t#ephemeral") is None


def test_an_unregistered_topic_takes_its_channels_along_but_not_their_keys() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t/c", "e#ephemeral/c#ephemeral")
    keys = [Key("channel", "e#ephemeral", "c#ephemeral"), Key("topic", "e#ephemeral")]
    assert harness.registrations.unregister(nsqd, "e#ephemeral") == keys
    assert harness.registrations.topics() == ["t"]
    assert harness.registrations.channels("e#ephemeral") == ["c#ephemeral"]
    assert harness.found("e#ephemeral") is None
    harness.registrations.unregister(nsqd, "t")
    assert harness.registrations.topics() == ["t"]
    assert harness.registrations.channels("t") == ["c"]
    assert harness.found("t") == []
    assert harness.topics_of() == {"n1": []}


def test_who_never_registered_can_end_what_is_ephemeral_and_empty() -> None:
    """nsqlookupd looks only at how many producers are left."""
    harness = LookupdHarness()
    harness.registrations.create_channel("t#ephemeral", "c#ephemeral")
    nsqd = harness.identify()
    assert harness.registrations.unregister(nsqd, "t#ephemeral", "c#ephemeral") == []
    assert harness.registrations.channels("t#ephemeral") == []
    assert harness.registrations.unregister(nsqd, "t#ephemeral") == []
    assert harness.registrations.topics() == []
    assert harness.registrations.topic_count == harness.registrations.channel_count == 0


def test_a_disconnected_producer_leaves_all_keys() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t/c", "e#ephemeral/c#ephemeral")
    assert harness.registrations.remove_peer(nsqd) == [
        Key("client"),
        Key("channel", "t", "c"),
        Key("topic", "t"),
        Key("channel", "e#ephemeral", "c#ephemeral"),
        Key("topic", "e#ephemeral"),
    ]
    assert harness.registrations.remove_peer(nsqd) == []
    assert harness.registrations.topics() == ["t", "e#ephemeral"]
    assert harness.registrations.channels("*") == ["c", "c#ephemeral"]
    assert harness.found("t") == []
    assert harness.topics_of() == {}
    assert harness.registrations.debug() == {}


def test_who_is_silent_too_long_is_not_shown_until_it_pings() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t")
    harness.wait(300)
    assert harness.found("t") == ["n1"]
    harness.wait(0.000000001)
    assert harness.found("t") == []
    assert harness.topics_of() == {}
    assert list(harness.registrations.debug()) == ["client::", "topic:t:"]
    harness.registrations.touch(nsqd, harness.now)
    assert harness.found("t") == ["n1"]
    assert harness.topics_of() == {"n1": ["t"]}


def test_a_ping_before_identify_means_nothing() -> None:
    harness = LookupdHarness()
    harness.registrations.touch(7, harness.now)
    assert harness.registrations.nodes(harness.now) == []


def test_a_tombstone_hides_from_lookups_of_one_topic_for_its_lifetime() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", "u", name="a")
    harness.nsqd("t/c", name="b")
    harness.registrations.tombstone("t", "a:4151", harness.now)
    harness.registrations.tombstone("t", "nobody:1", harness.now)
    assert (harness.found("t"), harness.found("u")) == (["b"], ["a"])
    assert harness.topics_of() == {"a": ["t +", "u"], "b": ["t"]}
    harness.wait(45)
    assert harness.found("t") == ["a", "b"]
    assert harness.topics_of() == {"a": ["t", "u"], "b": ["t"]}


def test_a_tombstone_is_lifted_by_a_new_registration_not_by_a_repeated_one() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t/c", name="a")
    harness.registrations.tombstone("t", "a:4151", harness.now)
    harness.registrations.register(nsqd, "t", "c")
    assert harness.found("t") == []
    harness.registrations.unregister(nsqd, "t", "c")
    harness.registrations.register(nsqd, "t", "c")
    assert harness.found("t") == []
    harness.registrations.unregister(nsqd, "t")
    harness.registrations.register(nsqd, "t", "c")
    assert harness.found("t") == ["a"]


def test_a_reconnect_lifts_a_tombstone() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t", name="a")
    harness.registrations.tombstone("t", "a:4151", harness.now)
    again = harness.nsqd("t", name="a")
    assert harness.found("t") == ["a"]
    harness.registrations.remove_peer(nsqd)
    assert harness.found("t") == ["a"]
    harness.registrations.remove_peer(again)
    assert harness.found("t") == []


def test_created_topics_and_channels_have_no_producers() -> None:
    harness = LookupdHarness()
    harness.registrations.create_topic("t")
    harness.registrations.create_channel("u", "c")
    harness.registrations.create_channel("u", "c")
    assert harness.registrations.topics() == ["t", "u"]
    assert (harness.found("t"), harness.found("u")) == ([], [])
    assert harness.registrations.channels("u") == ["c"]
    assert harness.registrations.debug() == {}


def test_a_deleted_topic_takes_channels_and_registrations_along() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t/c", "t/d", "u")
    keys = [Key("channel", "t", "c"), Key("channel", "t", "d"), Key("topic", "t")]
    assert harness.registrations.delete_topic("t") == keys
    assert harness.registrations.delete_topic("t") == []
    assert harness.registrations.topics() == ["u"]
    assert harness.topics_of() == {"n1": ["u"]}
    assert harness.registrations.registration_count == 1
    assert harness.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c"), Key("topic", "t")]


def test_a_deleted_channel() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", "t/d")
    assert harness.registrations.delete_channel("t", "c")
    assert not harness.registrations.delete_channel("t", "c")
    assert not harness.registrations.delete_channel("x", "c")
    assert harness.registrations.channels("t") == ["d"]
    assert harness.found("t") == ["n1"]
    assert harness.registrations.registration_count == 2


def test_a_star_is_every_topic() -> None:
    harness = LookupdHarness()
    assert harness.found("*") is None
    harness.nsqd("t/c", "u/c", name="a")
    harness.nsqd("u/d", name="b")
    assert harness.found("*") == ["a", "b"]
    assert harness.registrations.channels("*") == ["c", "c", "d"]
    harness.registrations.tombstone("t", "a:4151", harness.now)
    assert harness.found("*") == ["a", "b"]
    harness.registrations.tombstone("*", "a:4151", harness.now)
    assert harness.found("*") == ["b"]
    assert len(harness.registrations.delete_topic("*")) == 5
    assert harness.registrations.topics() == []
    assert harness.found("*") is None


def test_debug_shows_every_entry_and_its_tombstone_after_its_end() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", name="a")
    harness.registrations.tombstone("t", "a:4151", harness.now)
    tombstoned_at = harness.now
    harness.wait(TOMBSTONE / SECOND)
    debug = harness.registrations.debug()
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
    harness = LookupdHarness(topics=2, channels=1)
    nsqd = harness.nsqd("t", "u")
    with pytest.raises(CapReached, match="topics exceed limit of 2"):
        harness.registrations.register(nsqd, "v")
    with pytest.raises(CapReached):
        harness.registrations.create_topic("v")
    harness.registrations.create_channel("t", "c")
    with pytest.raises(CapReached, match="channels exceed limit of 1"):
        harness.registrations.register(nsqd, "t", "d")
    with pytest.raises(CapReached):
        harness.registrations.create_channel("v", "d")
    assert harness.registrations.topics() == ["t", "u"]
    assert harness.registrations.register(nsqd, "t", "c") == [Key("channel", "t", "c")]
    harness.registrations.delete_topic("t")
    harness.registrations.create_channel("v", "d")


def test_one_producer_cannot_take_what_all_may_have() -> None:
    harness = LookupdHarness(registrations=5, producer_registrations=3)
    one, other = harness.nsqd("t/c"), harness.nsqd("t/c")
    with pytest.raises(CapReached, match="registrations of one producer exceed limit of 3"):
        harness.registrations.register(one, "u", "c")
    assert harness.registrations.topics() == ["t"]
    harness.registrations.register(one, "u")
    with pytest.raises(CapReached, match="registrations exceed limit of 5"):
        harness.registrations.register(other, "v")
    harness.registrations.remove_peer(one)
    harness.registrations.register(other, "v")
    assert harness.registrations.registration_count == 3


def test_inactive_timeout_is_of_the_last_sign() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t")
    for _ in range(3):
        harness.wait(INACTIVE_AFTER / SECOND)
        harness.registrations.touch(nsqd, harness.now)
    assert harness.found("t") == ["n1"]
