"""What damage was found is counted, for a topic and for all, and shown when there is something to show."""

from __future__ import annotations

from zope.interface import directlyProvides

from nsqtw.core.damage import DamageLedger
from nsqtw.core.segment import Segment
from nsqtw.interfaces import IDamagedQueue
from nsqtw.stats.document import document
from tests.core.harness import BrokerHarness


def test_nothing_is_shown_of_a_broker_without_damage() -> None:
    harness = BrokerHarness()
    harness.broker.topic("t")
    found = document(harness.broker, "1", now=harness.now)
    assert "damage" not in found
    assert "lost_count" not in found["topics"][0]


def test_counters_of_a_topic_and_of_all() -> None:
    harness = BrokerHarness()
    damage = harness.broker.damage
    for name in ("t", "u"):
        harness.broker.topic(name)
        damage.add(name, lost=2, damaged=3, set_aside=1)
    damage.add("", lost=1, damaged=1)
    damage.add_file("damaged.d/1/t/0.log")
    found = document(harness.broker, "1", now=harness.now)
    assert found["damage"] == {
        "lost_count": 5,
        "damaged_count": 7,
        "set_aside_count": 2,
        "set_aside": ["damaged.d/1/t/0.log"],
    }
    topic = found["topics"][0]
    assert [topic[key] for key in ("lost_count", "damaged_count", "set_aside_count")] == [2, 3, 1]


def test_a_deleted_topic_takes_its_counters_with_it_and_not_those_of_all() -> None:
    harness = BrokerHarness()
    harness.broker.topic("t")
    harness.broker.damage.add("t", lost=2, damaged=2)
    harness.broker.delete_topic("t")
    harness.turn()
    assert harness.broker.damage.of_topic("t") is None
    assert harness.broker.damage.total().lost == 2


def test_files_of_earlier_runs_alone_are_shown() -> None:
    ledger = DamageLedger()
    assert ledger.shown() is None
    ledger.files = ["damaged.d/1/positions.db"]
    shown = ledger.shown()
    assert shown is not None and shown["set_aside"] == ["damaged.d/1/positions.db"]


def test_a_channel_waits_for_no_message_that_a_read_found_lost() -> None:
    """One that has passed them, and what was dropped, are not counted twice."""
    harness = BrokerHarness()
    topic = harness.topic()
    behind, ahead = harness.channel("behind"), harness.channel("ahead")
    harness.put(*[b"%d" % number for number in range(10)])
    harness.turn()
    assert len(harness.reader("ahead", ready=6).read()) == 6
    first = topic.log.end - 10
    harness.broker.damage.add_lost("t", first + 2, first + 5)
    assert (behind.depth, ahead.depth) == (7, 4)
    harness.broker.damage.add_lost("t", first + 5, first + 7)
    assert (behind.depth, ahead.depth) == (5, 3)
    harness.broker.damage.add_lost("gone", first, first + 9)
    assert (behind.depth, ahead.depth) == (5, 3)
    harness.broker.damage.add_lost("t", first + 7, first + 8, "behind")
    assert (behind.depth, ahead.depth) == (4, 3)


def test_a_start_forgets_what_waits_of_messages_that_are_lost() -> None:
    """Requeued, deferred and in flight: ten messages, of which the first five are damaged."""
    harness = BrokerHarness()
    reader = harness.reader(ready=10)
    harness.put(*[b"%d" % number for number in range(10)])
    found = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    for number in (1, 6):
        reader.requeue(found[number].id)
    for number in (2, 7):
        reader.requeue(found[number].id, delay=100.0)
    reader.finish(found[0].id)
    harness.save()
    queue = harness.backend.queue("t")
    (segment,) = queue._segments
    queue._segments[:] = [Segment(segment.first + 5, 5, 0, segment.slice(5, 10))]
    queue.is_damaged = True
    directlyProvides(queue, IDamagedQueue)
    harness.crash()
    channel = harness.channel()
    assert (channel.depth, channel.deferred_count) == (4, 1)
    again = harness.reader()
    assert sorted(again.bodies()) == [b"5", b"6", b"8", b"9"]
    assert (channel.depth, channel.in_flight_count) == (0, 4)
    harness.wait(101)
    assert b"7" in again.bodies()
    assert not [line for _, line in harness.lines if "not stored any more" in line]
