"""A channel that is moved, over crashes and failed saves."""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness

HOUR = 3600.0


def harness(**options: object) -> BrokerHarness:
    found = BrokerHarness(retention_time=HOUR, **options)
    found.topic()
    found.channel()
    return found


def finish_all(harness: BrokerHarness) -> list[bytes]:
    reader = harness.reader(ready=2500)
    messages = reader.read()
    reader.finish(*(message.id for message in messages))
    reader.leave()
    return [message.body for message in messages]


def seek(harness: BrokerHarness, place: int = 0) -> tuple[int, int]:
    """Move it `place` messages behind the oldest one, as a preview says before. What is skipped, and what replayed."""
    harness.save()
    return move(harness, harness.topic().reader.kept_from + place)


def move(harness: BrokerHarness, sequence: int) -> tuple[int, int]:
    channel = harness.channel()
    foretold = channel.preview_seek(sequence)
    moved = channel.seek(sequence)
    assert (foretold, channel.depth) == (moved, moved.depth)
    return moved.skipped, moved.replayed


def test_the_next_span_lies_behind_what_was_dropped_and_stays_unread() -> None:
    one = harness()
    one.put(b"a", b"b")
    one.turn()
    cursor = one.channel().cursor
    assert cursor is not None
    both = cursor.next_span(one.now)
    assert both is not None and both == cursor.next_span(one.now), "nothing is read before advance"
    first = both.segment.first
    cursor._topic.dropped.add(first, first + 1)
    assert cursor.next_span(one.now) == (both.segment, 1, 2)
    assert cursor.next == first + 1, "the dropped message is behind the cursor"


def test_a_replay_of_deferred_messages_goes_on_after_a_crash() -> None:
    one = harness()
    one.put(b"late", delay_ms=60_000)
    one.put(b"a")
    one.turn()
    one.wait(61.0)
    assert sorted(finish_all(one)) == [b"a", b"late"]
    assert seek(one) == (0, 2)
    for _ in range(2):
        one.save()
        one.crash()
    assert one.channel().depth == 2
    assert sorted(finish_all(one)) == [b"a", b"late"]
    one.wait(61.0)
    assert finish_all(one) == []


def test_a_save_that_fails_after_a_move_forgets_nothing() -> None:
    one = harness(mem_queue_size=10)
    one.page_rows = one.broker.page_rows = 2
    one.crash()
    reader = one.reader(ready=8)
    one.put(*[b"%d" % number for number in range(8)])
    for message in reader.read():
        reader.requeue(message.id, 30.0)
    reader.leave()
    assert one.channel().deferred_count == 8
    assert seek(one, 5) == (0, 0)
    assert (one.channel().depth, one.channel().deferred_count) == (3, 5)
    one.save(BackendError("full"))
    one.save()
    one.crash()
    assert (one.channel().depth, one.channel().deferred_count) == (3, 5)
    one.wait(31.0)
    assert sorted(finish_all(one)) == [b"%d" % number for number in range(8)]


def test_many_deferred_messages_of_a_replay_are_held_a_part_a_turn() -> None:
    one = harness()
    for number in range(2500):
        one.put(b"%d" % number, delay_ms=60_000 + number)
    one.turn()
    assert one.channel().deferred_count == 2500
    assert seek(one) == (0, 0)
    assert one.channel().depth == 2500
    assert finish_all(one) == []
    assert (one.channel().depth, one.channel().deferred_count) == (0, 2500)
    one.wait(70.0)
    assert len(finish_all(one)) == 2500


def test_a_move_back_tells_what_is_ready_from_what_waits() -> None:
    """Of rows that only positions.db has too: a reader that comes for the ready ones is not served for ever."""
    one = harness(page_rows=2)
    reader = one.reader(ready=12)
    late, again = [b"late %d" % number for number in range(8)], [b"again %d" % number for number in range(4)]
    one.put(*late, *again)
    for message in reader.read():
        reader.requeue(message.id, 30.0 if message.body in late else 0.0)
    reader.leave()
    one.save()
    one.crash()
    channel = one.channel()
    assert (channel.depth, channel.deferred_count) == (4, 8)
    assert seek(one, 10) == (0, 0)
    assert (channel.depth, channel.deferred_count) == (4, 8)
    one.save()
    assert sorted(finish_all(one)) == again
    assert (channel.depth, channel.deferred_count) == (0, 8)
    one.wait(31.0)
    assert sorted(finish_all(one)) == late


def test_a_move_within_a_replay() -> None:
    one = harness()
    one.put(b"a")
    one.put(b"late", delay_ms=60_000)
    one.put(b"b", b"c")
    one.turn()
    assert finish_all(one) == [b"a", b"b", b"c"]
    assert seek(one) == (0, 3)
    assert finish_all(one) == [b"a", b"b", b"c"]
    assert seek(one, 2) == (0, 2), "what is deferred before the place stays"
    assert seek(one, 4) == (3, 0), "and is skipped on the way forwards"
    assert (one.channel().depth, one.channel().deferred_count) == (0, 0)


def test_a_paused_topic_keeps_what_is_not_released() -> None:
    one = harness()
    one.put(b"a")
    one.turn()
    one.topic().pause()
    one.put(b"b")
    one.turn()
    one.save()
    assert move(one, one.topic().released) == (1, 0)
    one.topic().unpause(one.now)
    assert finish_all(one) == [b"b"]


@pytest.mark.parametrize("before", ["a restart", "an empty topic"])
def test_a_place_behind_a_gap_is_not_forwards_when_nothing_is_in_the_gap(before: str) -> None:
    """A time before all messages is the place of the first one that the channel has not read."""
    one = BrokerHarness()
    reader = one.reader()
    one.put(b"unfinished")
    assert reader.bodies() == [b"unfinished"]
    if before == "a restart":
        one.stop_and_start()
        reader = one.reader()
        assert reader.bodies() == [b"unfinished"]
    else:
        one.topic().pause()
        one.put(b"emptied")
        one.turn()
        one.topic().empty()
        one.topic().unpause(one.now)
    reader.leave()
    one.put(b"new")
    one.save()
    cursor, topic = one.channel().cursor, one.topic()
    assert cursor is not None
    place = next(topic.reader.segments(cursor.next, topic.released)).first
    assert cursor.next < place < topic.released
    assert move(one, place) == (0, 0)
    one.wait(61.0)
    assert sorted(one.reader().bodies()) == [b"new", b"unfinished"]
