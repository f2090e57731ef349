"""Saved state that makes no sense."""

from __future__ import annotations

from copy import deepcopy

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from tests.core.harness import BrokerHarness

HOUR_MS = 3_600_000


def test_a_topic_whose_state_made_no_sense_starts_at_the_oldest_message_kept() -> None:
    """With all its channels; what was deferred still is."""
    harness = BrokerHarness()
    for name in ("c", "d"):
        harness.channel(name)
    harness.put(b"a")
    harness.put(b"later", delay_ms=HOUR_MS)
    harness.turn()
    reader = harness.reader()
    reader.finish(*[message.id for message in reader.read()])
    harness.save()
    harness.positions.saved.topics.clear()
    harness.positions.saved.lost_topics = [NamedTopic("t", channels=(NamedChannel("c"), NamedChannel("d")))]
    harness.crash(named=[NamedTopic("t", channels=(NamedChannel("c", paused=True),))])
    assert harness.channel("c").paused
    for name in ("c", "d"):
        assert (harness.channel(name).depth, harness.channel(name).deferred_count) == (1, 1)


def test_numbers_that_do_not_go_together() -> None:
    """A channel beyond all sequences would wait for ever."""
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"a")
    harness.save()
    (topic,) = harness.positions.saved.topics
    topic.cursors[0].next = (1 << 53) - 1
    harness.crash()
    assert harness.reader().bodies() == [b"a"]
    assert any("makes no sense" in line for _, line in harness.lines)


def test_rows_of_messages_that_were_trimmed_before_a_power_loss_are_forgotten() -> None:
    """The trim reached the medium, the checkpoint before it did not: its rows name messages that are not stored."""
    harness = BrokerHarness()
    reader = harness.reader(ready=2)
    harness.put(b"a")
    harness.turn()
    harness.put(b"b")
    harness.turn()
    for message in reader.read():
        reader.requeue(message.id, 3600.0)
    harness.save()
    older = deepcopy(harness.positions)
    harness.channel().empty()
    harness.put(b"c")
    harness.turn()
    harness.save()
    older.saved.topics[0].end = harness.topic().log.end + 1  # and the newest messages are lost
    harness.positions = older
    harness.crash()
    channel = harness.channel()
    harness.wait(3600.0)
    waiting = channel.depth + channel.deferred_count
    assert len(harness.reader().bodies()) == waiting == 1
