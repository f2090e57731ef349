"""Changed options, and the order in which topics and channels follow them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import BackendError
from nsqtw.options.channels import ChannelRule
from nsqtw.options.topics import TopicRule
from tests.core.harness import BrokerHarness

AT_ONCE = 100
NEXT_TURN = 0.001


def configured(harness: BrokerHarness, value: int) -> None:
    """A reload, of one table for topics and one for channels."""
    policy = {"message_ttl": float(value), "dedupe_window": float(value)}
    harness.options.topic_rules = (TopicRule("*", durability="fsync", retention_time=float(value), policy=policy),)
    harness.options.channel_rules = (ChannelRule("*/*", {"max_attempts": value}),)
    harness.broker.follow_options(harness.now)


def attempts(harness: BrokerHarness, topic: str = "t") -> list[int]:
    return [channel.policy.max_attempts for channel in harness.topic(topic).channels.values()]


def create(harness: BrokerHarness, count: int, topic: str = "t") -> None:
    for number in range(count):
        harness.channel(f"c{number}", topic)


def test_a_few_channels_follow_at_once() -> None:
    harness = BrokerHarness()
    create(harness, AT_ONCE - 1)
    configured(harness, 5)
    topic = harness.topic()
    assert attempts(harness) == [5] * (AT_ONCE - 1)
    assert (topic.durability, topic.message_ttl_ns) == ("fsync", 5 * 10**9)
    assert topic.reader.retention_policy.limits.time == 5.0
    assert harness.broker.timers.next_due is None


def test_many_channels_follow_in_the_order_of_their_creation_over_several_turns() -> None:
    harness = BrokerHarness()
    create(harness, 250)
    create(harness, 1, "later")
    configured(harness, 5)
    assert attempts(harness) == [5] * 99 + [0] * 151
    harness.wait(NEXT_TURN)
    assert attempts(harness) == [5] * 199 + [0] * 51
    assert harness.topic("later").message_ttl_ns == 0 and attempts(harness, "later") == [0]
    harness.wait(NEXT_TURN)
    assert attempts(harness) == [5] * 250
    assert harness.topic("later").message_ttl_ns == 5 * 10**9 and attempts(harness, "later") == [5]


def test_what_is_created_or_set_meanwhile_has_the_new_options_at_once() -> None:
    harness = BrokerHarness()
    create(harness, 250)
    configured(harness, 5)
    assert harness.channel("new").policy.max_attempts == 5
    assert harness.channel("c", "new").policy.max_attempts == 5
    assert harness.topic("new").message_ttl_ns == 5 * 10**9
    harness.channel("c249").policies.set({"order_window": 2})
    assert harness.channel("c249").policy.max_attempts == 5 and harness.channel("c248").policy.max_attempts == 0


def test_what_is_deleted_meanwhile_is_left_out() -> None:
    """A deleted channel does not refuse publishes by a bound that it never had."""
    harness = BrokerHarness()
    create(harness, 250)
    create(harness, 250, "deleted")
    harness.options.channel_rules = (ChannelRule("t/c200", {"max_depth": 1}),)
    harness.broker.follow_options(harness.now)
    harness.topic().delete_channel("c200")
    harness.broker.delete_topic("deleted")
    for _ in range(5):
        harness.wait(NEXT_TURN)
    answers = harness.put(b"1", b"2")
    harness.turn()
    assert answers == [None]


def test_another_change_meanwhile_begins_from_the_start() -> None:
    harness = BrokerHarness()
    create(harness, 250)
    configured(harness, 5)
    harness.wait(NEXT_TURN)
    configured(harness, 6)
    assert attempts(harness) == [6] * 99 + [5] * 100 + [0] * 51
    for _ in range(2):
        harness.wait(NEXT_TURN)
    assert attempts(harness) == [6] * 250
    assert harness.broker.timers.next_due is None


def test_options_that_are_the_same_change_nothing() -> None:
    """Nothing is saved again, and what is not used is not logged again."""
    contradiction = (ChannelRule("*/*", {"priority": True}), ChannelRule("*/c0", {"ordered_by": "header:k"}))
    harness = BrokerHarness(channel_rules=contradiction)
    create(harness, 2)
    configured(harness, 5)
    harness.options.channel_rules = contradiction
    harness.broker.follow_options(harness.now)
    lines = len(harness.lines)
    harness.save()
    harness.options.topic_rules = tuple(harness.options.topic_rules)
    harness.options.channel_rules = (*contradiction, ChannelRule("other/*", {"max_attempts": 1}))
    harness.broker.follow_options(harness.now)
    assert len(harness.lines) == lines
    assert not harness.broker.touched


def test_a_class_that_cannot_be_left_keeps_no_other_topic_from_following() -> None:
    harness = BrokerHarness(durability="memory")
    for name in ("t", "u"):
        harness.channel(topic=name)
    harness.put(b"1")
    harness.turn()
    failure = BackendError("no space left on device")
    harness.backend.commit = lambda writes, durable: {queue: failure for queue, _ in writes}  # type: ignore[method-assign]
    configured(harness, 5)
    line = "TOPIC(t): stays in durability class memory - no space left on device"
    assert ("error", line) in harness.lines
    assert [harness.topic(name).durability for name in ("t", "u")] == ["memory", "fsync"]
    assert attempts(harness) == attempts(harness, "u") == [5]


@given(st.lists(st.sampled_from(["configure", "create", "delete", "set", "turn"]), max_size=30), st.randoms())
def test_everything_follows_in_the_end(steps: list[str], random: Any) -> None:
    harness = BrokerHarness()
    create(harness, 150)
    value = count = 0
    for step in steps:
        channel = harness.channel(random.choice(list(harness.topic().channels)))
        if step == "configure":
            value += 1
            configured(harness, value)
        elif step == "create":
            count += 1
            assert harness.channel(f"new{count}").policy.max_attempts == value
        elif step == "delete":
            harness.topic().delete_channel(channel.name)
        elif step == "set":
            channel.policies.set({"order_window": 3})
            assert channel.policy.max_attempts == value
        else:
            harness.wait(NEXT_TURN)
    for _ in range(3):
        harness.wait(NEXT_TURN)
    assert set(attempts(harness)) == {value}
    assert harness.topic().message_ttl_ns == value * 10**9
