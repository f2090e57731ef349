"""Snapshots: what comes back, what is stale, and that damage is one error."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import SnapshotError
from nsqtw.lookupd import snapshot
from nsqtw.lookupd.snapshot import Restored
from tests.lookupd.world import SECOND, START, World


def saved() -> tuple[World, bytes]:
    """A world and a snapshot of it, 10 s after its nsqds were heard of."""
    world = World()
    world.nsqd("t/c", "t/d", "u", name="a")
    world.nsqd("t/c", name="b")
    world.registrations.create_channel("w", "e")
    world.registrations.gone(world.nsqd("x#ephemeral/c#ephemeral", name="c"))
    world.wait(10)
    world.registrations.tombstone("t", "b:4151", world.now)
    return world, snapshot.encode(world.registrations, world.now)


def restarted(data: bytes, *, after: float = 100.0) -> World:
    """Another nsqlookupd, some seconds after the snapshot."""
    world = World()
    world.now = START + int((10 + after) * SECOND)
    snapshot.restore(world.registrations, data, world.now)
    return world


def signed(body: bytes) -> bytes:
    """As the file ends: so that what is wrong is found behind the checksum."""
    return body + b"CRC %08x\n" % crc32(body)


def test_what_was_known_is_known_again() -> None:
    before, data = saved()
    world = World()
    world.now = before.now
    assert snapshot.restore(world.registrations, data, world.now) == Restored(before.now, 2, 4)
    assert world.registrations.topics() == before.registrations.topics()
    assert world.registrations.channels("*") == before.registrations.channels("*")
    for topic in ("t", "u", "w", "x#ephemeral"):
        assert world.found(topic) == before.found(topic)
    assert world.topics_of() == before.topics_of() == {"a": ["t", "u"], "b": ["t +"]}
    assert [node.is_stale for node in world.registrations.nodes(world.now)] == [True, True]
    assert [node.is_stale for node in before.registrations.nodes(world.now)] == [False, False]
    assert world.registrations.registration_count == 0
    assert world.registrations.channel_count == before.registrations.channel_count == 4


def test_nothing_is_a_snapshot_too() -> None:
    world = restarted(snapshot.encode(World().registrations, START))
    assert world.registrations.topics() == []
    assert world.topics_of() == {}


def test_a_snapshot_of_what_was_restored_is_the_same() -> None:
    _, data = saved()
    again = restarted(restarted(data, after=0).snapshot(), after=0)
    assert again.topics_of() == restarted(data, after=0).topics_of()


def test_ages_do_not_go_on_while_nsqlookupd_is_away() -> None:
    world = restarted(saved()[1], after=1_000_000)
    world.wait(290)
    assert world.found("u") == ["a"]
    world.wait(0.000000001)
    assert world.found("u") == []


def test_who_nobody_confirms_is_forgotten_and_its_keys_stay() -> None:
    world = restarted(saved()[1])
    world.wait(291)
    assert world.registrations.producer_count == 0
    assert world.registrations.debug() == {}
    assert world.registrations.topics() == ["t", "u", "w", "x#ephemeral"]


def test_a_tombstone_outlives_a_restart_and_ends_in_time() -> None:
    world = restarted(saved()[1], after=44)
    assert world.found("t") == ["a"]
    world.wait(1)
    assert world.found("t") == ["a", "b"]


def test_an_nsqd_that_comes_again_is_found_without_a_gap_and_once() -> None:
    world = restarted(saved()[1])
    nsqd = world.identify("a")
    assert world.topics_of() == {"a": ["t", "u"], "b": ["t"]}
    assert world.found("u") == ["a"]
    [node] = [node for node in world.registrations.nodes(world.now) if node.producer.broadcast_address == "a"]
    assert (node.is_stale, node.producer.peer_id) == (False, nsqd)
    world.registrations.register(nsqd, "t", "c")
    assert world.found("t") == ["a", "b"]
    assert world.found("*") == ["a", "b"]
    assert world.topics_of()["a"] == ["t", "u"]
    found = world.registrations.lookup("u", world.now)
    assert found is not None and [producer.peer_id for producer in found.producers] == [nsqd]


def test_what_an_nsqd_did_not_say_again_by_its_first_ping_it_does_not_have() -> None:
    world = restarted(saved()[1])
    nsqd = world.nsqd("t/c", name="a")
    world.registrations.touch(nsqd, world.now)
    assert world.topics_of() == {"a": ["t"], "b": ["t"]}
    assert world.found("u") == []
    assert [key for key in world.registrations.debug() if key.startswith("channel")] == ["channel:t:c"]
    world.registrations.touch(nsqd, world.now)
    assert world.topics_of() == {"a": ["t"], "b": ["t"]}


def test_what_an_nsqd_unregisters_it_does_not_have_from_before_either() -> None:
    world = restarted(saved()[1])
    nsqd = world.nsqd("t/c", name="a")
    world.registrations.unregister(nsqd, "u")
    assert world.found("u") == []
    world.registrations.unregister(nsqd, "t")
    assert world.topics_of()["a"] == []


def test_registering_lifts_a_tombstone_from_before() -> None:
    world = restarted(saved()[1], after=0)
    nsqd = world.identify("b")
    assert world.found("t") == ["a"]
    world.registrations.register(nsqd, "t", "c")
    assert world.found("t") == ["a", "b"]


def test_a_tombstone_hides_what_an_nsqd_has_from_before_too() -> None:
    world = restarted(saved()[1])
    nsqd = world.nsqd("t/c", name="a")
    world.registrations.tombstone("*", "a:4151", world.now)
    assert (world.found("t"), world.found("u")) == (["b"], [])
    world.registrations.register(nsqd, "u")
    assert world.found("u") == ["a"]


def test_an_nsqd_that_comes_after_it_was_forgotten_has_what_it_says() -> None:
    world = restarted(saved()[1])
    world.wait(291)
    world.identify("a")
    assert world.topics_of() == {"a": []}


def test_an_nsqd_that_never_pings_has_what_it_says_when_the_rest_is_forgotten() -> None:
    world = restarted(saved()[1])
    world.wait(100)
    world.nsqd("t", name="a")
    assert world.topics_of()["a"] == ["t", "u"]
    world.wait(191)
    assert world.topics_of() == {"a": ["t"]}


def test_an_nsqd_that_came_and_went_is_gone() -> None:
    world = restarted(saved()[1])
    world.registrations.gone(world.identify("a"))
    assert world.topics_of() == {"b": ["t"]}
    assert world.found("u") == []


def test_another_port_is_another_nsqd() -> None:
    world = restarted(saved()[1])
    world.nsqd("u", name="z")
    assert world.found("u") == ["a", "z"]


def test_two_connections_of_one_nsqd_come_back_as_one() -> None:
    world = World()
    world.nsqd("t/c", "u", name="a")
    world.wait(5)
    world.nsqd("t/c", name="a")
    again = restarted(world.snapshot(), after=0)
    assert again.topics_of() == {"a": ["t", "u"]}
    assert again.found("t") == ["a"]
    assert again.registrations.debug()["client::"][0]["last_update"] == START + 10 * SECOND


def test_of_two_connections_the_one_without_a_tombstone_counts() -> None:
    world = World()
    world.nsqd("t", "u", name="a")
    world.registrations.tombstone("*", "a:4151", world.now)
    world.nsqd("t", name="a")
    again = restarted(world.snapshot(), after=-10)
    assert (again.found("t"), again.found("u")) == (["a"], [])


def test_what_came_while_it_was_written_is_left_out() -> None:
    world = World()
    world.nsqd("t", name="a")
    lines = snapshot.pieces(world.registrations, world.now)
    written = [next(lines) for _ in range(3)]
    world.nsqd("t/c", name="late")
    again = restarted(b"".join([*written, *lines]))
    assert again.topics_of() == {"a": ["t"]}
    assert again.registrations.channels("t") == ["c"]


def test_what_an_nsqd_says_of_itself_comes_back_whatever_it_is() -> None:
    world = World()
    odd = "\u2028\n\r\x85<é\ud800\0"
    world.nsqd("t", name=odd)
    assert restarted(world.snapshot()).found("t") == [odd]


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "this is no snapshot"),
        (b'{"topics":null,"version":"1.3.0"}', "this is no snapshot"),
        (signed(b'NSQTW REGISTRATIONS 2\n{"saved_at":1}\n'), "another version than 1"),
        (b"NSQTW REGISTRATIONS 1\n", "checksum"),
        (signed(b"NSQTW REGISTRATIONS 1\n"), "damaged"),
        (signed(b"NSQTW REGISTRATIONS 1\n{}\n"), "damaged"),
        (signed(b'NSQTW REGISTRATIONS 1\n{"saved_at":1}\n[]\n'), "damaged"),
        (signed(b'NSQTW REGISTRATIONS 1\n{"saved_at":1}\n{"producer":1}\n'), "damaged"),
        (signed(b'NSQTW REGISTRATIONS 1\n{"saved_at":' + b"9" * 30 + b"}\n"), "damaged"),
        (signed(b'NSQTW REGISTRATIONS 1\n{"saved_at":1}\n' + b"[" * 100_000 + b"\n"), "damaged"),
    ],
)
def test_what_is_no_snapshot_is_one_error_and_changes_nothing(data: bytes, why: str) -> None:
    world = World()
    with pytest.raises(SnapshotError, match=why):
        snapshot.restore(world.registrations, data, world.now)
    assert world.registrations.producer_count == world.registrations.topic_count == 0


TOPIC = '{"topic":%s,"has_key":true,"members":%s,"tombstones":%s,"channels":%s}\n'


@pytest.mark.parametrize(
    "topic",
    [
        TOPIC % ('"a b"', "[]", "[]", "{}"),
        TOPIC % ("1", "[]", "[]", "{}"),
        TOPIC % ("[]", "[]", "[]", "{}"),
        TOPIC % ('"t"', "1", "[]", "{}"),
        TOPIC % ('"t"', '["1"]', "[]", "{}"),
        TOPIC % ('"t"', f"[{1 << 64}]", "[]", "{}"),
        TOPIC % ('"t"', "[[]]", "[]", "{}"),
        TOPIC % ('"t"', "[]", "[1]", "{}"),
        TOPIC % ('"t"', "[]", '[[1,"x"]]', "{}"),
        TOPIC % ('"t"', "[]", "[]", '{"*":[]}'),
        TOPIC % ('"t"', "[]", "[]", '{"c":[1.5]}'),
        TOPIC % ('"t"', "[]", "[]", "[]"),
    ],
)
def test_a_topic_that_is_none_is_damage(topic: str) -> None:
    with pytest.raises(SnapshotError):
        restarted(signed(b'NSQTW REGISTRATIONS 1\n{"saved_at":1}\n' + topic.encode()))


def test_who_has_a_channel_has_its_topic() -> None:
    _, data = saved()
    spoilt = data[: data.rindex(b"CRC")].replace(b'"has_key":true,"members":[1,2]', b'"has_key":false,"members":[]')
    world = restarted(signed(spoilt))
    assert world.found("t") == ["a", "b"]
    world.wait(1000)


@given(st.data())
def test_a_flipped_or_missing_byte_is_found(draw: st.DataObject) -> None:
    _, data = saved()
    at = draw.draw(st.integers(0, len(data) - 1))
    flipped = draw.draw(st.integers(1, 255))
    for spoilt in (data[:at], data[:at] + bytes([data[at] ^ flipped]) + data[at + 1 :], data[:at] + data[at + 1 :]):
        with pytest.raises(SnapshotError):
            restarted(spoilt)
