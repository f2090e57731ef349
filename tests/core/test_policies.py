"""Policies in a broker: in force at once, kept over a crash, and never a reason to fail."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.core.checkpoint import NamedTopic
from nsqtw.errors import InvalidPolicy
from nsqtw.options.channels import ChannelRule
from nsqtw.options.resolution import NO_CHANNEL_POLICY, NO_TOPIC_POLICY, PolicyTable, resolve
from nsqtw.options.settings import ChannelPolicy
from nsqtw.options.topics import TopicRule
from tests.core.harness import BrokerHarness


def test_a_crash_forgets_nothing_that_was_saved() -> None:
    harness = BrokerHarness()
    channel = harness.channel()
    channel.topic.policies.set({"message_ttl": 60.0})  # type: ignore[attr-defined]
    channel.policies.set({"max_attempts": 5})
    harness.save()
    channel.policies.set({"max_attempts": 6})
    harness.crash()
    assert harness.broker.topics["t"].policy.message_ttl == 60.0
    assert harness.channel().policy.max_attempts == 5
    harness.save()
    harness.channel().policies.set({})
    harness.save()
    harness.crash()
    assert harness.channel().policy is NO_CHANNEL_POLICY
    assert harness.broker.topics["t"].policy.message_ttl == 60.0


def test_positions_that_make_no_sense_do_not_cost_the_policy() -> None:
    harness = BrokerHarness()
    channel = harness.channel()
    channel.policies.set({"max_attempts": 5})
    harness.broker.topics["t"].policies.set({"message_ttl": 60.0})
    harness.save()
    harness.positions.saved.topics[0].cursors[0].next = (1 << 53) - 1
    harness.crash()
    assert any("makes no sense" in line for _, line in harness.lines)
    assert (harness.channel().policy.max_attempts, harness.broker.topics["t"].policy.message_ttl) == (5, 60.0)


def test_a_topic_without_saved_state_has_none() -> None:
    harness = BrokerHarness()
    harness.broker.topic("t").policies.set({"message_ttl": 60.0})
    harness.save()
    harness.positions.saved.topics.clear()
    harness.crash(named=[NamedTopic("t")])
    assert harness.broker.topics["t"].policy is NO_TOPIC_POLICY


def test_a_refused_change_changes_nothing() -> None:
    harness = BrokerHarness()
    channel = harness.channel()
    channel.policies.set({"priority": True})
    before = channel.policy
    try:
        channel.policies.set({"priority": True, "ordered_by": "header:k"})
    except InvalidPolicy:
        assert (channel.policy, channel.given_policy) == (before, {"priority": True})
    else:
        raise AssertionError("it contradicts itself")


def test_new_topics_and_channels_follow_the_tables() -> None:
    harness = BrokerHarness(
        topic_rules=(TopicRule("t*", policy={"message_ttl": 60.0}),),
        channel_rules=(ChannelRule("t*/c", {"max_depth": 5}),),
    )
    assert harness.broker.topic("t1").policy.message_ttl == 60.0
    assert harness.broker.topic("other").policy is NO_TOPIC_POLICY
    assert harness.broker.topic("t1").channel("c", harness.now).policy.max_depth == 5
    assert harness.broker.topic("t1").channel("d", harness.now).policy is NO_CHANNEL_POLICY


SETTINGS = st.sampled_from(
    [{}, {"priority": True}, {"ordered_by": "header:k"}, {"max_depth": 1}, {"max_depth": 2, "priority": False}]
)
STEPS = st.one_of(
    st.tuples(st.just("set"), SETTINGS),
    st.tuples(st.just("reload"), st.lists(SETTINGS, max_size=3)),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("recreate"), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=10))
def test_the_policy_is_that_of_a_model(steps: list[tuple[str, Any]]) -> None:
    """What was set and saved, over what the tables say now; what contradicts the rest is left out."""
    harness = BrokerHarness()
    harness.channel()
    harness.save()
    given_settings: dict[str, Any] = {}
    saved_settings: dict[str, Any] = {}
    rules: list[dict[str, Any]] = []

    def expected(of: dict[str, Any]) -> ChannelPolicy:
        return resolve(ChannelPolicy, [PolicyTable("", rule) for rule in rules], of).policy

    for step, value in steps:
        if step == "set":
            try:
                harness.channel().policies.set(value)
            except InvalidPolicy:
                continue
            given_settings = value
        elif step == "reload":
            try:
                for rule in value:
                    resolve(ChannelPolicy, [], rule)
            except InvalidPolicy:
                continue  # a start and a reload refuse such a table
            rules = value
            harness.broker.options.channel_rules = tuple(ChannelRule("*/*", rule) for rule in rules)
            harness.broker.follow_options(harness.now)
        elif step == "recreate":
            harness.broker.topics["t"].delete_channel("c")
            harness.channel()
            given_settings = {}
            harness.save()
        else:
            if value:
                harness.save()
            else:
                given_settings = saved_settings
            harness.crash()
        if step == "recreate" or (step == "crash" and value):
            saved_settings = given_settings
        channel = harness.channel()
        assert channel.given_policy == given_settings
        try:
            assert channel.policy == expected(given_settings)
        except InvalidPolicy:
            assert channel.policy == expected({})
