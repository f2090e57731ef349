"""Reading a topic's log by position."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.errors import BackendError
from tests.core.harness import START, WALL_NS, BrokerHarness, messages

HOUR = 3600.0
ALL = 1 << 30


def harness(**options: Any) -> BrokerHarness:
    """A topic that retains for an hour."""
    found = BrokerHarness(retention_time=HOUR, **options)
    found.topic()
    return found


def bodies(harness: BrokerHarness, start: int = 0, limit: int = ALL) -> list[bytes]:
    """The messages that can be read from a position on."""
    parts = harness.topic().reader.read(start, limit).parts
    return [message.body for part in parts if isinstance(part, Segment) for message in messages(part.frames)]


def publish(harness: BrokerHarness, *bodies: bytes, **settings: Any) -> int:
    """Publish; the position of the first one."""
    harness.put(*bodies, **settings)
    harness.turn()
    reading = harness.topic().reader
    return reading._runs.end - len(bodies)


def test_reading_changes_nothing_and_needs_no_channel() -> None:
    one = harness()
    first = publish(one, b"a", b"b")
    publish(one, b"c")
    for _ in range(2):
        assert bodies(one) == [b"a", b"b", b"c"]
    assert bodies(one, first + 1) == [b"b", b"c"], "also from within a segment"
    assert bodies(one, first + 3) == []
    assert one.topic().depth == 3, "for the first channel"
    assert len(one.reader().bodies()) == 3
    assert bodies(one) == [b"a", b"b", b"c"]


def test_without_retention_a_topic_without_a_channel_shows_nothing() -> None:
    one = BrokerHarness()
    publish(one, b"a")
    assert bodies(one) == []
    one.channel()
    assert bodies(one) == [b"a"]


@pytest.mark.parametrize("is_paused", [False, True])
def test_the_end_is_not_below_the_oldest_message_while_nothing_is_released(is_paused: bool) -> None:
    one = BrokerHarness()
    if is_paused:
        one.topic().pause()
        one.channel()
    first = publish(one, b"a", b"b")
    reader = one.topic().reader
    assert (first, first) == (reader.kept_from, reader.end)
    assert (first, []) == (reader.read(0, ALL).stop, reader.read(0, ALL).parts)
    assert first == reader.position_at(0)
    one.topic().unpause(one.now)
    one.channel()
    assert (first, first + 2) == (reader.kept_from, reader.end)


def test_nothing_past_released_is_shown() -> None:
    one = harness()
    one.channel()
    publish(one, b"a")
    one.topic().pause()
    publish(one, b"b")
    assert bodies(one) == [b"a"]
    one.topic().unpause(one.now)
    assert bodies(one) == [b"a", b"b"]


def test_nothing_past_committed_is_shown() -> None:
    one = harness(durability="memory")
    one.channel()
    publish(one, b"a")
    assert bodies(one) == []
    one.wait(2.0)
    assert bodies(one) == [b"a"]


def test_what_is_on_its_way_to_stable_storage_is_not_shown() -> None:
    one = harness(durability="fsync")
    one.channel()
    one.lands_at_once = False
    publish(one, b"a")
    one.batch.commit(one.log)
    assert bodies(one) == []
    one.land()
    assert bodies(one) == [b"a"]


def test_a_part_is_about_as_large_as_asked_for_and_says_where_to_go_on() -> None:
    one = harness()
    for number in range(10):
        publish(one, b"%d" % number)
    counts, position = [], 0
    while (extract := one.topic().reader.read(position, 80)).parts:
        counts.append(sum(len(messages(part.frames)) for part in extract.parts))
        position = extract.stop
    assert counts == [3, 3, 3, 1]
    assert position == one.topic().reader.end


def test_it_begins_at_the_oldest_message_kept() -> None:
    one = harness()
    publish(one, b"a")
    one.wait(HOUR / 2)
    second = publish(one, b"b")
    one.channel().empty()
    one.wait(HOUR / 2 + 1)
    one.save()
    assert one.topic().reader.read(0, ALL).start == one.topic().reader.kept_from == second
    assert bodies(one) == [b"b"]


def test_a_reader_that_has_read_all_before_a_gap_misses_nothing_when_that_is_gone() -> None:
    one = harness()
    publish(one, b"a")
    read_to = one.topic().reader.end
    one.crash()
    one.wait(HOUR / 2)
    publish(one, b"b")
    one.channel().empty()
    one.wait(HOUR / 2 + 1)
    one.save()
    assert bodies(one) == [b"b"]
    assert one.topic().reader.kept_from == read_to
    one.crash()
    assert one.topic().reader.kept_from == read_to


def test_gaps_are_passed_over() -> None:
    one = harness()
    publish(one, b"a")
    one.crash()
    publish(one, b"b")
    extract = one.topic().reader.read(0, ALL)
    assert [type(part) for part in extract.parts] == [Segment, Segment]
    assert extract.stop - extract.start > 2


def test_lost_messages_are_said() -> None:
    one = harness()
    first = publish(one, b"a")
    publish(one, b"b", b"c")
    publish(one, b"d")
    publish(one, b"e")
    one.crash()
    queue = one.backend.queue("t")
    del queue._segments[1], queue._segments[2:]
    extract = one.topic().reader.read(0, ALL)
    assert extract.parts[0].first == first
    assert extract.parts[1] == range(first + 1, first + 3)
    assert extract.parts[3] == range(first + 4, first + 5)
    assert extract.stop == one.topic().reader.end


def test_what_was_emptied_is_gone_for_readers_too() -> None:
    one = harness()
    one.channel()
    publish(one, b"a")
    one.topic().pause()
    first = publish(one, b"b", b"c")
    one.topic().empty()
    one.topic().unpause(one.now)
    publish(one, b"d")
    for _ in range(2):
        assert bodies(one) == [b"a", b"d"]
        assert one.topic().reader.count(first - 1, one.topic().reader.end) == 2
        one.channel().empty()
        one.save()
        one.crash()


def test_deferred_messages_are_shown_when_they_are_released() -> None:
    one = harness()
    one.channel()
    publish(one, b"a", delay_ms=5000)
    (part,) = one.topic().reader.read(0, ALL).parts
    assert (part.delay_ms, part.count) == (5000, 1)


def test_what_memory_has_forgotten_is_read_from_the_backend() -> None:
    one = harness()
    one.broker._cache.limit = 3 * SEGMENT_BYTES
    body = b"x" * 100_000
    for number in range(30):
        publish(one, b"%d" % number + body)
    assert [found[: -len(body)] for found in bodies(one)] == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("spoiled", [0, 1])
def test_a_medium_that_fails(spoiled: int) -> None:
    """Said when nothing could be read; else what could be read is shown."""
    one = harness()
    publish(one, b"a")
    publish(one, b"b")
    one.crash()
    queue = one.backend.queue("t")
    read, calls = queue.read, []

    def failing(start: int, limit: int) -> list[Segment]:
        calls.append(start)
        if len(calls) > spoiled:
            raise BackendError("EIO")
        return read(start, 1)

    queue.read = failing
    if spoiled:
        assert bodies(one) == [b"a"]
    else:
        with pytest.raises(BackendError):
            bodies(one)


def test_positions_of_moments() -> None:
    one = harness()
    positions = []
    for number in range(40):
        positions.append(publish(one, b"a", b"b"))
        one.wait(1.0)
        if number % 15 == 14:
            one.crash()
    reading = one.topic().reader
    start_ms = (WALL_NS // 10**6) + int(START * 1000)
    for number, position in enumerate(positions):
        assert reading.position_at(start_ms + 1000 * number) == position
        assert reading.position_at(start_ms + 1000 * number - 500) == position
    assert reading.position_at(0) == positions[0]
    assert reading.position_at(start_ms + 10**6) == reading.end


def test_a_moment_within_blocks_that_were_joined() -> None:
    """Single publishes that were read back as one segment still have their own times."""
    one = harness()
    positions = [publish(one, b"%d" % number) for number in range(3) if one.wait(1.0) is None]
    start_ms = (WALL_NS // 10**6) + int(START * 1000)
    one.crash()
    one.reader().bodies()
    for number, position in enumerate(positions):
        assert one.topic().reader.position_at(start_ms + 1000 * (number + 1)) == position


def test_watchers_are_told_once() -> None:
    one = harness()
    told: list[int] = []
    one.topic().reader.watch(lambda: told.append(1))
    publish(one, b"a")
    publish(one, b"b")
    assert told == [1]


def test_messages_of_an_older_version_are_counted_by_reading_them() -> None:
    """Its state has no runs."""
    one = harness()
    first = publish(one, *[b"x"] * 5)
    one.channel().empty()
    one.save()
    one.positions.saved.topics[0].runs = []
    one.crash()
    assert one.topic().reader.count(first + 1, one.topic().reader.end) == 4
