"""Time to live: messages that have expired are not delivered, but dropped or moved to the dead-letter topic."""

from __future__ import annotations

import pytest

from nsqtw.core.policy import expiry
from nsqtw.core.policy.expiry import leading_run
from nsqtw.core.segment import Segment, encode, encode_dated
from tests.core.harness import BrokerHarness
from tests.core.policy.harness import put, settle, stored

SECOND = 10**9


@pytest.fixture
def core() -> BrokerHarness:
    core = BrokerHarness()
    core.channel()
    return core


def live_longer(core: BrokerHarness) -> None:
    core.topic().policies.set({"message_ttl": 10.0})


def test_messages_expire_by_the_setting_of_their_topic(core: BrokerHarness) -> None:
    live_longer(core)
    put(core, b"old")
    core.wait(5)
    put(core, b"new")
    core.wait(5)
    channel = core.channel()
    assert channel.depth == 2
    assert core.reader().bodies() == [b"new"]
    assert (channel.depth, channel.in_flight_count, channel.expired_count, channel.finish_count) == (0, 1, 1, 0)


def test_the_header_of_a_message_wins(core: BrokerHarness) -> None:
    live_longer(core)
    put(core, b"short", ttl="2000")
    put(core, b"long", ttl="60000")
    put(core, b"never", ttl="0")
    put(core, b"as the topic")
    put(core, b"no number", ttl="2 s")
    core.wait(5)
    reader = core.reader(ready=1)
    found = []
    for _ in range(2):
        (message,) = reader.read()
        found.append(message.body)
        reader.finish(message.id)
        core.wait(10)
    assert found == [b"long", b"never"]
    assert core.channel().expired_count == 3


def test_a_header_needs_no_setting(core: BrokerHarness) -> None:
    put(core, b"1", ttl="2000")
    put(core, b"2")
    core.wait(2)
    assert core.reader().bodies() == [b"2"]


def test_a_requeued_message_expires_too(core: BrokerHarness) -> None:
    live_longer(core)
    put(core, b"1", b"2")
    reader = core.reader()
    first, second = reader.read()
    reader.requeue(first.id, 4.0)
    reader.requeue(second.id, 10.0)
    core.wait(4)
    assert reader.bodies() == [b"1"]
    core.wait(6)
    assert reader.bodies() == []
    channel = core.channel()
    assert (channel.depth, channel.deferred_count, channel.in_flight_count, channel.expired_count) == (0, 0, 1, 1)
    assert reader.finish(first.id) == []


def test_what_has_expired_stays_so_after_a_crash(core: BrokerHarness) -> None:
    live_longer(core)
    put(core, b"1")
    core.save()
    core.wait(10)
    core.crash()
    live_longer(core)
    assert core.reader().bodies() == []
    core.save()
    assert core.channel().depth == 0


def test_it_is_the_wall_clock_that_counts(core: BrokerHarness) -> None:
    live_longer(core)
    put(core, b"1")
    core.wall_ns += 3600 * SECOND
    core.crash()
    live_longer(core)
    assert core.reader().bodies() == []


def test_expired_messages_may_become_dead_letters(core: BrokerHarness) -> None:
    live_longer(core)
    channel = core.channel()
    channel.policies.set({"expired": "dead_letter"})
    put(core, b"1", b"2", ttl="3000")
    put(core, b"3")
    core.wait(3)
    reader = core.reader()
    assert reader.bodies() == [b"3"]
    settle(core)
    found = stored(core, "t.dead")
    assert [*found] == [b"1", b"2"]
    assert found[b"1"]["nsq-dead-reason"] == "expired"
    assert found[b"1"]["nsq-dead-attempts"] == "0"
    assert (channel.expired_count, channel.dead_letter_count, channel.depth, channel.held) == (2, 2, 0, [])


def test_an_expired_letter_is_dropped(core: BrokerHarness) -> None:
    core.channel().policies.set({"max_attempts": 1})
    put(core, b"1")
    reader = core.reader()
    (message,) = reader.read()
    reader.requeue(message.id)
    settle(core)
    core.topic("t.dead").policies.set({"message_ttl": 1.0})
    letters = core.channel("c", "t.dead")
    letters.policies.set({"expired": "dead_letter"})
    core.wait(1)
    assert core.reader("c", "t.dead").bodies() == []
    settle(core)
    assert (letters.depth, letters.expired_count, letters.held) == (0, 1, [])
    assert "t.dead.dead" not in core.broker.topics


def test_an_ephemeral_channel_passes_them(core: BrokerHarness) -> None:
    live_longer(core)
    reader = core.reader("e#ephemeral", ready=0)
    put(core, b"1")
    core.wait(10)
    put(core, b"2")
    reader.channel.set_ready(reader.consumer, 10)
    assert reader.bodies() == [b"2"]
    assert reader.channel.expired_count == 1


def test_many_are_passed_without_a_turn_that_takes_long(core: BrokerHarness) -> None:
    live_longer(core)
    for number in range(100):
        put(core, b"%d" % number)
    core.wait(10)
    reader = core.reader()
    core.broker.serve(core.now)
    passed = core.channel().expired_count
    assert 0 < passed < 100
    assert reader.bodies() == []
    assert core.channel().expired_count == 100


def test_many_dead_letters_wait_for_those_before_them(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.policy.dead_letters.MAX_HELD", 5)
    live_longer(core)
    channel = core.channel()
    channel.policies.set({"expired": "dead_letter"})
    put(core, *[b"%d" % number for number in range(12)])
    core.wait(10)
    core.reader()
    core.broker.serve(core.now)
    assert len(channel.held) == 5
    assert not core.broker.serve(core.now)
    settle(core, 30)
    assert len(stored(core, "t.dead")) == 12


# -- runs


def test_a_segment_without_headers_that_was_published_at_once_is_not_looked_through() -> None:
    segment = encode([b"a", b"bb", b"ccc"], 1, 0, 5 * SECOND)
    assert leading_run(segment, 0, 3, 2 * SECOND, 7 * SECOND) == (3, True)
    assert leading_run(segment, 1, 3, 2 * SECOND, 7 * SECOND - 1) == (3, False)
    assert leading_run(segment, 0, 3, 0, 7 * SECOND) == (3, False)


def test_runs_of_a_joined_segment() -> None:
    segment = encode_dated([(1 * SECOND, b"a"), (1 * SECOND, b"b"), (2 * SECOND, b"c"), (3 * SECOND, b"d")], 1, 0)
    assert leading_run(segment, 0, 4, SECOND, 3 * SECOND) == (3, True)
    assert leading_run(segment, 1, 4, SECOND, 2 * SECOND) == (2, True)
    assert leading_run(segment, 2, 4, SECOND, 2 * SECOND) == (4, False)


def test_runs_of_messages_with_their_own_time() -> None:
    headers = [b"\x03ttl\x00\x041000", b"", b"\x01x\x00\x04\x03ttl", b"\x03ttl\x00\x019"]
    plain = encode([b"a", b"b", b"c", b"d"], 1, 0, 0)
    segment = Segment(1, 4, 0, plain.frames, headers)
    assert leading_run(segment, 0, 4, 0, SECOND) == (1, True)
    assert leading_run(segment, 1, 4, 0, SECOND) == (3, False)
    assert leading_run(segment, 3, 4, 0, SECOND) == (4, True)
    assert expiry.is_expired(segment, 1, SECOND, SECOND)
