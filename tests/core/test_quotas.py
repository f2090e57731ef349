"""Caps: how many topics and channels there may be, and what they may be called."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from nsqtw.core.quotas import CREATIONS_PER_TURN
from nsqtw.errors import CapReached, InvalidName
from tests.core.world import World


def test_no_more_topics_than_there_may_be() -> None:
    world = World(max_topics=2)
    world.topic("a")
    world.topic("b#ephemeral")
    with pytest.raises(CapReached) as caught:
        world.topic("c")
    assert (str(caught.value), caught.value.what) == ("topics exceed limit of 2", "topics")
    world.topic("a")
    world.broker.delete_topic("b#ephemeral")
    world.topic("c")


def test_channels_are_counted_over_all_topics() -> None:
    world = World(max_channels=2)
    world.channel("x", "a")
    world.channel("y#ephemeral", "b")
    with pytest.raises(CapReached, match="channels exceed limit of 2"):
        world.channel("z", "c")
    world.channel("x", "a")
    world.broker.delete_topic("a")
    assert world.broker.quotas.channel_count == 1
    world.channel("z", "c")
    world.broker.topics["b"].delete_channel("y#ephemeral")
    world.channel("z", "d")


def test_what_is_stored_is_loaded_whatever_the_caps() -> None:
    world = World()
    for name in "abc":
        world.put(b"x", topic=name)
        world.channel("c", name)
        world.channel("e#ephemeral", name)
    world.save()
    world.options.max_topics = world.options.max_channels = 1
    named = [NamedTopic("d", False, (NamedChannel("c", False), NamedChannel("e#ephemeral", False)))]
    world.crash(named=named)
    assert sorted(world.broker.topics) == ["a", "b", "c", "d"]
    assert world.broker.quotas.channel_count == 5
    with pytest.raises(CapReached):
        world.topic("e")


def test_a_turn_is_full_after_some_births() -> None:
    world = World()
    for number in range(CREATIONS_PER_TURN):
        assert not world.broker.quotas.is_full
        world.topic(f"t{number}")
    assert world.broker.quotas.is_full
    world.topic("t0")
    world.turn()
    assert not world.broker.quotas.is_full


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../../x", "\0", "a\n", "x" * 65, "\udcff", "é", "#ephemeral"])
def test_nothing_is_born_under_a_name_that_is_none(name: str) -> None:
    """A third party's protocol may check nothing."""
    world = World()
    if name not in ("..", "."):  # which are names
        with pytest.raises(InvalidName):
            world.topic(name)
        assert world.broker.topics == {}
        with pytest.raises(InvalidName):
            world.channel(name)
    assert not Path("x").exists()
