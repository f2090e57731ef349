"""
The messages before a place in the log that a channel has not read, counted by reading that part of the log.

Theory of operation. What lies between two sequences is known without reading (`LogReader.count`), but not which of it a
channel has not read: deferred messages are delivered before their place is reached, messages of a class before others,
and some are for other channels only. So the log is read, some of it in a turn, and counted in *parts* of some messages.
The channel goes on meanwhile: in the end a part before the position of a class counts nothing for it, and the part with
the position is read once more. A channel whose counts tell that nothing in its part of the log was passed needs no
reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from nsqtw.core.log_reader import LogReader
from nsqtw.core.policy.priority import PriorityReader
from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.core.topic_log import TopicLog

_PART_MESSAGES: Final = 1024


class ReadPosition(Protocol):
    """A cursor, of which this is needed."""

    next: int
    taken_total: int
    priorities: PriorityReader | None

    @property
    def replays(self) -> int:
        """See `Cursor.replays`."""

    @property
    def uncounted(self) -> tuple[int, int]:
        """See `Cursor.uncounted`."""


class _Part(NamedTuple):
    """The messages from `first` to before `end`, and how many of each class a channel reads."""

    first: int
    end: int
    counts: list[int]


class UnreadMessages:
    """The unread messages of `channel` of `topic`, whose position is `cursor`, before the sequence `stop`."""

    def __init__(self, topic: TopicLog, reader: LogReader, channel: str, cursor: ReadPosition, stop: int) -> None:
        self.stop = stop
        self._topic = topic
        self._reader = reader
        self._channel = channel
        self._cursor = cursor
        self._begin()

    def look(self) -> bool:
        """Read about SEGMENT_BYTES more. Returns whether all that is needed was read. BackendError."""
        if self._cursor.next >= self.stop or self._is_all_unread():
            return True
        cursor = self._cursor
        if cursor.next < self._start or (cursor.priorities, cursor.replays) != (self._priorities, self._replays):
            self._begin()  # the channel was moved, or has another policy
        size = SEGMENT_BYTES
        while size > 0:
            segment = next(self._segments, None)
            if segment is None:
                return True
            self._add(segment)
            size -= len(segment.frames)
        return False

    def count(self) -> int:
        """Return how many there are, once `look` has returned True in this turn. BackendError."""
        if self._cursor.next >= self.stop:
            return 0
        if self._is_all_unread():
            return self._reader.count(self._cursor.next, self.stop)
        return sum(self._count_from(number, position) for number, position in enumerate(self._positions()))

    # -- inside

    def _begin(self) -> None:
        cursor = self._cursor
        self._start, self._priorities, self._replays = cursor.next, cursor.priorities, cursor.replays
        self._parts: list[_Part] = []
        self._segments: Iterator[Segment] = self._reader.segments(self._start, self.stop)

    def _is_all_unread(self) -> bool:
        """Return whether the channel has passed nothing from its position on, as far as that is counted."""
        cursor, topic = self._cursor, self._topic
        if cursor.uncounted[1]:
            return False
        return topic.released_total - cursor.taken_total == self._reader.count(cursor.next, topic.released)

    def _positions(self) -> list[int]:
        """Return the position of each class, or the only one."""
        return [self._cursor.next] if self._priorities is None else self._priorities.at

    def _add(self, segment: Segment) -> None:
        counts = self._counts(segment)
        if self._parts and self._parts[-1].end - self._parts[-1].first < _PART_MESSAGES:
            last = self._parts.pop()
            counts = [one + other for one, other in zip(last.counts, counts, strict=True)]
            self._parts.append(_Part(last.first, segment.end, counts))
        else:
            self._parts.append(_Part(segment.first, segment.end, counts))

    def _counts(self, segment: Segment) -> list[int]:
        """Return how many messages of each class in a segment the channel reads from the log."""
        stop = segment.end
        if segment.delay_ms:
            stop = min(stop, self._replays)
        count = max(0, stop - segment.first) if segment.is_for(self._channel) else 0
        if self._priorities is None:
            return [count]
        classes = self._priorities.classes_in(segment)
        return [classes.count(number, 0, count) for number in range(len(self._priorities.at))]

    def _count_from(self, number: int, position: int) -> int:
        """Return how many messages of a class there are from its position on."""
        count = 0
        for part in self._parts:
            if position <= part.first:
                count += part.counts[number]
            elif position < part.end:
                segments = self._reader.segments(position, min(part.end, self.stop))
                count += sum(self._counts(segment)[number] for segment in segments)
        return count
