"""Saved state that makes no sense."""

from __future__ import annotations

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from tests.core.world import World

HOUR_MS = 3_600_000


def test_a_topic_whose_state_made_no_sense_starts_at_the_oldest_message_kept() -> None:
    """With all its channels; what was deferred still is."""
    world = World()
    for name in ("c", "d"):
        world.channel(name)
    world.put(b"a")
    world.put(b"later", delay_ms=HOUR_MS)
    world.turn()
    reader = world.reader()
    reader.finish(*[message.id for message in reader.read()])
    world.save()
    world.positions.saved.topics.clear()
    world.positions.saved.lost_topics = [NamedTopic("t", channels=(NamedChannel("c"), NamedChannel("d")))]
    world.crash(named=[NamedTopic("t", channels=(NamedChannel("c", paused=True),))])
    assert world.channel("c").paused
    for name in ("c", "d"):
        assert (world.channel(name).depth, world.channel(name).deferred_count) == (1, 1)


def test_numbers_that_do_not_go_together() -> None:
    """A channel beyond all sequences would wait for ever."""
    world = World()
    world.channel()
    world.put(b"a")
    world.save()
    (topic,) = world.positions.saved.topics
    topic.cursors[0].next = (1 << 53) - 1
    world.crash()
    assert world.reader().bodies() == [b"a"]
    assert any("makes no sense" in line for _, line in world.lines)
