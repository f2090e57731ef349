"""Snapshots: what comes back, what is stale, and that damage is one error."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import SnapshotError
from nsqtw.lookupd import snapshot
from nsqtw.lookupd.snapshot import Restored
from tests.lookupd.harness import SECOND, START, LookupdHarness


def saved() -> tuple[LookupdHarness, bytes]:
    """A harness and a snapshot of it, 10 s after its nsqds were heard of."""
    harness = LookupdHarness()
    harness.nsqd("t/c", "t/d", "u", name="a")
    harness.nsqd("t/c", name="b")
    harness.registrations.create_channel("w", "e")
    harness.registrations.remove_peer(harness.nsqd("x#ephemeral/c#ephemeral", name="c"))
    harness.wait(10)
    harness.registrations.tombstone("t", "b:4151", harness.now)
    return harness, snapshot.encode(harness.registrations, harness.now)


def restarted(data: bytes, *, after: float = 100.0) -> LookupdHarness:
    """Another nsqlookupd, some seconds after the snapshot."""
    harness = LookupdHarness()
    harness.now = START + int((10 + after) * SECOND)
    snapshot.restore(harness.registrations, data, harness.now)
    return harness


def signed(body: bytes) -> bytes:
    """As the file ends: so that what is wrong is found behind the checksum."""
    return body + b"CRC %08x\n" % crc32(body)


def test_what_was_known_is_known_again() -> None:
    before, data = saved()
    harness = LookupdHarness()
    harness.now = before.now
    assert snapshot.restore(harness.registrations, data, harness.now) == Restored(before.now, 2, 4)
    assert harness.registrations.topics() == before.registrations.topics()
    assert harness.registrations.channels("*") == before.registrations.channels("*")
    for topic in ("t", "u", "w", "x#ephemeral"):
        assert harness.found(topic) == before.found(topic)
    assert harness.topics_of() == before.topics_of() == {"a": ["t", "u"], "b": ["t +"]}
    assert [node.is_stale for node in harness.registrations.nodes(harness.now)] == [True, True]
    assert [node.is_stale for node in before.registrations.nodes(harness.now)] == [False, False]
    assert harness.registrations.registration_count == 0
    assert harness.registrations.channel_count == before.registrations.channel_count == 4


def test_nothing_is_a_snapshot_too() -> None:
    harness = restarted(snapshot.encode(LookupdHarness().registrations, START))
    assert harness.registrations.topics() == []
    assert harness.topics_of() == {}


def test_a_snapshot_of_what_was_restored_is_the_same() -> None:
    _, data = saved()
    again = restarted(restarted(data, after=0).snapshot(), after=0)
    assert again.topics_of() == restarted(data, after=0).topics_of()


def test_ages_do_not_go_on_while_nsqlookupd_is_away() -> None:
    harness = restarted(saved()[1], after=1_000_000)
    harness.wait(290)
    assert harness.found("u") == ["a"]
    harness.wait(0.000000001)
    assert harness.found("u") == []


def test_who_nobody_confirms_is_forgotten_and_its_keys_stay() -> None:
    harness = restarted(saved()[1])
    harness.wait(291)
    assert harness.registrations.producer_count == 0
    assert harness.registrations.debug() == {}
    assert harness.registrations.topics() == ["t", "u", "w", "x#ephemeral"]


def test_a_tombstone_outlives_a_restart_and_ends_in_time() -> None:
    harness = restarted(saved()[1], after=44)
    assert harness.found("t") == ["a"]
    harness.wait(1)
    assert harness.found("t") == ["a", "b"]


def test_an_nsqd_that_comes_again_is_found_without_a_gap_and_once() -> None:
    harness = restarted(saved()[1])
    nsqd = harness.identify("a")
    assert harness.topics_of() == {"a": ["t", "u"], "b": ["t"]}
    assert harness.found("u") == ["a"]
    [node] = [node for node in harness.registrations.nodes(harness.now) if node.producer.broadcast_address == "a"]
    assert (node.is_stale, node.producer.peer_id) == (False, nsqd)
    harness.registrations.register(nsqd, "t", "c")
    assert harness.found("t") == ["a", "b"]
    assert harness.found("*") == ["a", "b"]
    assert harness.topics_of()["a"] == ["t", "u"]
    found = harness.registrations.lookup("u", harness.now)
    assert found is not None and [producer.peer_id for producer in found.producers] == [nsqd]


def test_what_an_nsqd_did_not_say_again_by_its_first_ping_it_does_not_have() -> None:
    harness = restarted(saved()[1])
    nsqd = harness.nsqd("t/c", name="a")
    harness.registrations.touch(nsqd, harness.now)
    assert harness.topics_of() == {"a": ["t"], "b": ["t"]}
    assert harness.found("u") == []
    assert [key for key in harness.registrations.debug() if key.startswith("channel")] == ["channel:t:c"]
    harness.registrations.touch(nsqd, harness.now)
    assert harness.topics_of() == {"a": ["t"], "b": ["t"]}


def test_what_an_nsqd_unregisters_it_does_not_have_from_before_either() -> None:
    harness = restarted(saved()[1])
    nsqd = harness.nsqd("t/c", name="a")
    harness.registrations.unregister(nsqd, "u")
    assert harness.found("u") == []
    harness.registrations.unregister(nsqd, "t")
    assert harness.topics_of()["a"] == []


def test_registering_lifts_a_tombstone_from_before() -> None:
    harness = restarted(saved()[1], after=0)
    nsqd = harness.identify("b")
    assert harness.found("t") == ["a"]
    harness.registrations.register(nsqd, "t", "c")
    assert harness.found("t") == ["a", "b"]


def test_a_tombstone_hides_what_an_nsqd_has_from_before_too() -> None:
    harness = restarted(saved()[1])
    nsqd = harness.nsqd("t/c", name="a")
    harness.registrations.tombstone("*", "a:4151", harness.now)
    assert (harness.found("t"), harness.found("u")) == (["b"], [])
    harness.registrations.register(nsqd, "u")
    assert harness.found("u") == ["a"]


def test_an_nsqd_that_comes_after_it_was_forgotten_has_what_it_says() -> None:
    harness = restarted(saved()[1])
    harness.wait(291)
    harness.identify("a")
    assert harness.topics_of() == {"a": []}


def test_an_nsqd_that_never_pings_has_what_it_says_when_the_rest_is_forgotten() -> None:
    harness = restarted(saved()[1])
    harness.wait(100)
    harness.nsqd("t", name="a")
    assert harness.topics_of()["a"] == ["t", "u"]
    harness.wait(191)
    assert harness.topics_of() == {"a": ["t"]}


def test_an_nsqd_that_came_and_went_is_gone() -> None:
    harness = restarted(saved()[1])
    harness.registrations.remove_peer(harness.identify("a"))
    assert harness.topics_of() == {"b": ["t"]}
    assert harness.found("u") == []


def test_another_port_is_another_nsqd() -> None:
    harness = restarted(saved()[1])
    harness.nsqd("u", name="z")
    assert harness.found("u") == ["a", "z"]


def test_two_connections_of_one_nsqd_come_back_as_one() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", "u", name="a")
    harness.wait(5)
    harness.nsqd("t/c", name="a")
    again = restarted(harness.snapshot(), after=0)
    assert again.topics_of() == {"a": ["t", "u"]}
    assert again.found("t") == ["a"]
    assert again.registrations.debug()["client::"][0]["last_update"] == START + 10 * SECOND


def test_of_two_connections_the_one_without_a_tombstone_counts() -> None:
    harness = LookupdHarness()
    harness.nsqd("t", "u", name="a")
    harness.registrations.tombstone("*", "a:4151", harness.now)
    harness.nsqd("t", name="a")
    again = restarted(harness.snapshot(), after=-10)
    assert (again.found("t"), again.found("u")) == (["a"], [])


def test_what_came_while_it_was_written_is_left_out() -> None:
    harness = LookupdHarness()
    harness.nsqd("t", name="a")
    lines = snapshot.pieces(harness.registrations, harness.now)
    written = [next(lines) for _ in range(3)]
    harness.nsqd("t/c", name="late")
    again = restarted(b"".join([*written, *lines]))
    assert again.topics_of() == {"a": ["t"]}
    assert again.registrations.channels("t") == ["c"]


def test_what_an_nsqd_says_of_itself_comes_back_whatever_it_is() -> None:
    harness = LookupdHarness()
    odd = "\u2028\n\r\x85<é\ud800\0"
    harness.nsqd("t", name=odd)
    assert restarted(harness.snapshot()).found("t") == [odd]


@pytest.mark.parametrize(
    ("data", "why"),
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
    harness = LookupdHarness()
    with pytest.raises(SnapshotError, match=why):
        snapshot.restore(harness.registrations, data, harness.now)
    assert harness.registrations.producer_count == harness.registrations.topic_count == 0


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
    harness = restarted(signed(spoilt))
    assert harness.found("t") == ["a", "b"]
    harness.wait(1000)


@given(st.data())
def test_a_flipped_or_missing_byte_is_found(draw: st.DataObject) -> None:
    _, data = saved()
    at = draw.draw(st.integers(0, len(data) - 1))
    flipped = draw.draw(st.integers(1, 255))
    for spoilt in (data[:at], data[:at] + bytes([data[at] ^ flipped]) + data[at + 1 :], data[:at] + data[at + 1 :]):
        with pytest.raises(SnapshotError):
            restarted(spoilt)
