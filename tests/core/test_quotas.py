"""Caps: how many topics and channels there may be, and what they may be called."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from nsqtw.core.quotas import CREATIONS_PER_TURN
from nsqtw.errors import CapReached, InvalidName
from tests.core.harness import BrokerHarness


def test_no_more_topics_than_there_may_be() -> None:
    harness = BrokerHarness(max_topics=2)
    harness.topic("a")
    harness.topic("b#ephemeral")
    with pytest.raises(CapReached) as caught:
        harness.topic("c")
    assert (str(caught.value), caught.value.what) == ("topics exceed limit of 2", "topics")
    harness.topic("a")
    harness.broker.delete_topic("b#ephemeral")
    harness.topic("c")


def test_channels_are_counted_over_all_topics() -> None:
    harness = BrokerHarness(max_channels=2)
    harness.channel("x", "a")
    harness.channel("y#ephemeral", "b")
    with pytest.raises(CapReached, match="channels exceed limit of 2"):
        harness.channel("z", "c")
    harness.channel("x", "a")
    harness.broker.delete_topic("a")
    assert harness.broker.quotas.channel_count == 1
    harness.channel("z", "c")
    harness.broker.topics["b"].delete_channel("y#ephemeral")
    harness.channel("z", "d")


def test_what_is_stored_is_loaded_whatever_the_caps() -> None:
    harness = BrokerHarness()
    for name in "abc":
        harness.put(b"x", topic=name)
        harness.channel("c", name)
        harness.channel("e#ephemeral", name)
    harness.save()
    harness.options.max_topics = harness.options.max_channels = 1
    named = [NamedTopic("d", False, (NamedChannel("c", False), NamedChannel("e#ephemeral", False)))]
    harness.crash(named=named)
    assert sorted(harness.broker.topics) == ["a", "b", "c", "d"]
    assert harness.broker.quotas.channel_count == 5
    with pytest.raises(CapReached):
        harness.topic("e")


def test_a_turn_is_full_after_some_births() -> None:
    harness = BrokerHarness()
    for number in range(CREATIONS_PER_TURN):
        assert not harness.broker.quotas.is_full
        harness.topic(f"t{number}")
    assert harness.broker.quotas.is_full
    harness.topic("t0")
    harness.turn()
    assert not harness.broker.quotas.is_full


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../../x", "\0", "a\n", "x" * 65, "\udcff", "é", "#ephemeral"])
def test_nothing_is_born_under_a_name_that_is_none(name: str) -> None:
    """A third party's protocol may check nothing."""
    harness = BrokerHarness()
    if name not in ("..", "."):  # which are names
        with pytest.raises(InvalidName):
            harness.topic(name)
        assert harness.broker.topics == {}
        with pytest.raises(InvalidName):
            harness.channel(name)
    assert not Path("x").exists()
