"""Policies that meet in one message: each test is a row of the section "Together" of docs/how-to/policies.md."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.policy.dead_letters import RETRY_SECONDS
from nsqtw.core.policy.redrive import RUNNING, Redrive
from nsqtw.errors import Overflow
from tests.core.harness import BrokerHarness
from tests.core.policy.deduplicating import DeduplicatingHarness
from tests.core.policy.harness import bodies, fail, put, settle

A1, A2, A3, A4, B1 = [b'{"k":"%c","n":%d}' % (key, n) for key, n in zip(b"aaaab", (1, 2, 3, 4, 1), strict=True)]
BY_KEY = {"ordered_by": "json:k"}


def broker(**settings: Any) -> BrokerHarness:
    """A broker with a channel that has this policy."""
    core = BrokerHarness()
    core.channel().policies.set(settings)
    return core


def redrive(core: BrokerHarness) -> Redrive:
    topic, letters = core.topic(), core.topic("t.dead")
    return Redrive(topic, topic.channels["c"], letters, letters.channels["c"], 0, 0, core.now)


def test_a_message_that_is_given_up_frees_its_key() -> None:
    core = broker(max_attempts=1, **BY_KEY)
    put(core, A1, A2, B1)
    reader = core.reader()
    assert fail(reader) == [A1, B1]
    settle(core)
    assert bodies(core, "t.dead") == [A1, B1]
    assert reader.bodies() == [A2]


def test_a_redriven_message_is_behind_the_later_ones_of_its_key() -> None:
    core = broker(max_attempts=1, **BY_KEY)
    put(core, A1)
    reader = core.reader()
    fail(reader)
    settle(core)
    put(core, A2)
    begun = redrive(core)
    for _ in range(8):
        core.wait(0.1)
        settle(core)
    assert begun.redriven == 1
    (later,) = reader.read()
    assert later.body == A2
    reader.finish(later.id)
    assert reader.bodies() == [A1]


def test_a_key_waits_for_the_requeue_delay_of_its_message() -> None:
    core = broker(requeue_delay=10.0, **BY_KEY)
    put(core, A1, A2, B1)
    reader = core.reader()
    assert fail(reader) == [A1, B1]
    assert reader.bodies() == []
    core.wait(13)
    assert sorted(reader.bodies()) == [A1, B1]  # the delays vary


def test_an_expired_message_frees_its_key() -> None:
    core = broker(**BY_KEY)
    put(core, A1, ttl="1000")
    put(core, A2)
    core.wait(2)
    assert core.reader().bodies() == [A2]


def test_a_message_that_waits_for_its_key_may_be_dropped() -> None:
    core = broker(max_depth=1, overflow="drop_oldest", **BY_KEY)
    put(core, A1)
    reader = core.reader()
    (head,) = reader.read()
    put(core, A2)
    assert reader.bodies() == []
    put(core, A3, A4)
    core.turn()
    assert core.channel().dropped_count == 2
    reader.finish(head.id)
    assert reader.bodies() == [A4]


def test_after_the_last_attempt_there_is_no_delay() -> None:
    core = broker(max_attempts=2, requeue_delay=10.0)
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    core.wait(13)
    fail(reader)
    settle(core)
    assert bodies(core, "t.dead") == [b"1"]


def test_dropped_messages_are_no_dead_letters() -> None:
    core = broker(max_attempts=1, expired="dead_letter", max_depth=1, overflow="drop_oldest")
    put(core, b"1", b"2")
    settle(core)
    assert core.channel().dropped_count == 1
    assert "t.dead" not in core.broker.topics


def test_a_redrive_waits_for_room_in_its_channel() -> None:
    core = broker(max_attempts=1)
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    settle(core)
    reader.leave()
    core.channel().policies.set({"max_attempts": 1, "max_depth": 1})
    put(core, b"2")
    begun = redrive(core)
    for _ in range(4):
        core.wait(RETRY_SECONDS)
        settle(core)
    assert (begun.state, begun.redriven, begun.error) == (RUNNING, 0, "channel c has reached its max_depth")
    assert core.reader().bodies() == [b"2"]
    for _ in range(4):
        core.wait(RETRY_SECONDS)
        settle(core)
    assert begun.redriven == 1


def test_a_repeat_is_refused_while_a_channel_is_full() -> None:
    core = DeduplicatingHarness(window=60.0)
    core.channel().policies.set({"max_depth": 1})
    core.publish(("one", b"1"))
    core.turn()
    answers = core.publish(("one", b"1"))
    core.turn()
    assert [type(error) for error in answers] == [Overflow]


@pytest.mark.parametrize(("overflow", "left"), [("reject", 5), ("drop_oldest", 2)])
def test_a_seek_back_brings_no_more_than_a_bound_allows(overflow: str, left: int) -> None:
    core = BrokerHarness(retention_time=3600.0)
    reader = core.reader()
    for number in range(5):
        core.put(b"%d" % number)
    reader.finish(*[message.id for message in reader.read()])
    reader.leave()
    core.save()
    channel = core.channel()
    channel.policies.set({"max_depth": 2, "overflow": overflow})
    core.turn()
    assert channel.seek(core.topic().reader.kept_from).replayed == 5
    core.wait(0.1)
    assert channel.depth == left
    answers = core.put(b"5")
    core.turn()
    assert [type(error) for error in answers] == [Overflow if overflow == "reject" else type(None)]


def test_an_expired_message_is_known_by_its_id() -> None:
    core = DeduplicatingHarness(window=60.0)
    put(core, b"1", id="one", ttl="1000")
    core.wait(2)
    assert core.reader().bodies() == []
    put(core, b"1", id="one", ttl="1000")
    assert core.reader().bodies() == []
    assert core.repeats() == 1


def test_a_deferred_message_expires_before_its_time() -> None:
    core = broker()
    core.topic().policies.set({"message_ttl": 1.0})
    core.put(b"1", delay_ms=5000)
    core.turn()
    core.wait(6)
    assert core.reader().bodies() == []
    assert core.channel().expired_count == 1
