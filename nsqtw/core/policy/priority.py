"""
Priorities: a channel's position in the log for each of three classes of messages.

Theory of operation. The class of a message is its header `priority`. Each class has a position of its own in the one
log (`at`): all messages of the class before it are delivered, and the reader of a class skips the messages of the
others. So messages that wait take no memory, however many there are. `next` of the cursor is the lowest position.

             next = low                 normal          high
    log   h n n | l  h  n  l  n  h  l  n | n  h  l  n  h  | n  l  h       | waits, if not taken
                     *     -  *  *     *        *        *                * taken ahead of `next`

When several classes wait, deliveries are dealt in rounds: 12 of class high, 3 normal, 1 low. A class that has nothing
leaves its deliveries to the others. A reader that finds none of its class looks at LOOK_BYTES of the log and goes on
when it is asked again: in a long backlog without messages of class high, normal ones do not wait until all of it was
looked at.

Messages that were deferred by their publisher have no class: when they are due, they are delivered as requeued messages
are. A replay takes them from the log with class normal.

When the policy is switched off, the messages below the highest position that were not taken are delivered in the order
of the log. Then the reader is not needed any more (`is_done`).

How many messages of each class wait is the matter of `core.policy.priority_depths`.

Performance: called once per span.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from nsqtw.core.policy.priority_depths import PriorityDepths
from nsqtw.core.segment import SEGMENT_BYTES, Segment, Span
from nsqtw.core.topic_log import TopicLog
from nsqtw.message_headers import HIGH, LOW, NORMAL, class_of

SHARES: Final = (12, 3, 1)
"""Deliveries of each class in a round."""
LOOK_BYTES: Final = SEGMENT_BYTES
_MAX_CACHED: Final = 65_536
_NUMBERS: Final = (HIGH, NORMAL, LOW)
_CLASS_BYTES: Final = [bytes((number,)) for number in _NUMBERS]

HoldsDeferred = Callable[[Segment, int, float], bool]
"""
Takes a segment that was deferred by its publisher, the sequence from which on it is read, and `now`. Returns whether it
is delivered now; if not, what must be held is held.
"""


class PriorityReader:
    """
    The positions of the cursor of `channel` in the log of `topic`, all of them at `start`. `count_passed` is told the
    messages that only another channel gets, `replays` returns the sequence below which `is_due` may be true.
    """

    def __init__(
        self,
        topic: TopicLog,
        channel: str,
        start: int,
        is_due: HoldsDeferred,
        count_passed: Callable[[Segment, int, int], None],
        replays: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._is_due = is_due
        self._count_passed = count_passed
        self._replays = replays
        self.at = [start, start, start]
        """The position of each class."""
        self.depths = PriorityDepths(topic, channel, self.at, self.classes_in, replays)
        self.is_on = True
        """Whether high is delivered before low; else everything is in the order of the log."""
        self._end = start  # where the order of the log is complete again, once it is off
        self._found: list[Span | None] = [None, None, None]
        self._ahead: list[list[Segment]] = [[], [], []]
        self._read: list[tuple[Segment | None, bytes]] = [(None, b"")] * 3
        self._left = [*SHARES]
        self._class = NORMAL  # of the last span
        self._cache: dict[bytes, int] = {}

    @property
    def next(self) -> int:
        """The lowest position."""
        return min(self.at)

    @property
    def is_done(self) -> bool:
        """Whether a cursor at `next` delivers the same."""
        return not self.is_on and self.next >= self._end

    @property
    def has_found_each(self) -> bool:
        """Whether the position of each class is that of a message, or nothing of the class is behind it."""
        found = zip(self._found, self.at, strict=True)
        return all(span is not None or position >= self._topic.released for span, position in found)

    @property
    def is_looking(self) -> bool:
        """Whether it is not known which message is the oldest of all classes."""
        number = self._lowest()
        return self._found[number] is None and self.at[number] < self._topic.released

    def switch(self, *, is_on: bool) -> None:
        """Deliver by priority from now on, or in the order of the log."""
        self.is_on = is_on
        self._end = max(self.at)

    def move(self, positions: Sequence[int]) -> None:
        """Go to these positions."""
        self.at[:] = positions
        self.depths.recount()
        self._end = max(positions)
        self._found = [None, None, None]
        self._ahead = [[], [], []]
        self._left = [*SHARES]

    def next_span(self, now: float) -> Span | None:
        """Return what is delivered next, within one segment. None if nothing is found in this turn. BackendError."""
        found = self._found
        waiting = [number for number in _NUMBERS if found[number] is not None or self._find(number, now) is not None]
        if not waiting:
            return None
        if not self.is_on:
            self._class = self._lowest()
            return found[self._class]  # None while it is not found: no other class may pass it
        dealt = [number for number in waiting if self._left[number]]
        if not dealt:
            self._left = [*SHARES]
        self._class = (dealt or waiting)[0]
        span = found[self._class]
        assert span is not None
        if len(waiting) == 1:
            return span
        return span._replace(stop=min(span.stop, span.start + self._left[self._class]))

    def oldest(self, now: float) -> Span | None:
        """
        Return the places from the oldest message of all classes on, within one segment: there are messages of other
        classes among them. None when no message waits, or when the oldest is not found in this turn (`is_looking`).
        BackendError.
        """
        looked: set[int] = set()
        while True:
            number = self._lowest()
            span = self._found[number]
            if span is not None:
                self._class = number
                # Once it is off, what is behind `_end` is taken in the order of the log: no run is passed by another.
                return span._replace(stop=self._stop_in(span.segment, span.start)) if self.is_on else span
            if number in looked or self.at[number] >= self._topic.released:
                return None
            looked.add(number)
            self._find(number, now)

    def advance(self, count: int) -> None:
        """The first `count` messages of the last span are taken."""
        number = self._class
        span = self._found[number]
        assert span is not None
        segment, start, stop = span
        self.depths.take(number, segment.first + start, segment.first + start + count)
        start += count
        self.at[number] = segment.first + start
        self._found[number] = Span(segment, start, stop) if start < stop else None
        self._left[number] = max(0, self._left[number] - count)

    def drop(self, number: int, count: int, now: float) -> int:
        """
        Pass up to `count` messages of a class, oldest first, within one segment. Returns how many; 0 if none is found
        in this turn. BackendError.
        """
        span = self._found[number] or self._find(number, now)
        if span is None:
            return 0
        segment, start, _ = span
        stop = self._stop_in(segment, start)
        classes = self.classes_in(segment)
        if classes.count(number, start, stop) > count:
            places = range(start + 1, stop)
            stop = places[bisect_left(places, count, key=lambda place: classes.count(number, start, place))]
        return self._pass(number, segment, start, stop)

    def drop_oldest(self, count: int) -> int:
        """
        Pass the messages that are in the first `count` places of the last `oldest` and of the class of its first one.
        Returns how many.
        """
        span = self._found[self._class]
        assert span is not None
        return self._pass(self._class, span.segment, span.start, span.start + count)

    def waits(self, segment: Segment, index: int) -> bool:
        """Return whether a message was not delivered yet."""
        number = NORMAL if segment.delay_ms else self._class_of(segment.headers_of(index))
        return segment.first + index >= self.at[number]

    # -- inside

    def _lowest(self) -> int:
        """Return the class with the lowest position; of several, one whose message there is found."""
        return min(_NUMBERS, key=lambda number: (self.at[number], self._found[number] is None))

    def _stop_in(self, segment: Segment, start: int) -> int:
        """Return up to which place messages of a segment may be taken that follow one that may."""
        dropped, _ = self._topic.dropped.at_or_above(segment.first + start, self._topic.released)
        return min(segment.end, dropped) - segment.first

    def _pass(self, number: int, segment: Segment, start: int, stop: int) -> int:
        """Pass the messages of a class between two places. Returns how many."""
        self.depths.take_of(number, segment, segment.first + start, segment.first + stop)
        self.at[number] = segment.first + stop
        self._found[number] = None
        return self.classes_in(segment).count(number, start, stop)

    def _find(self, number: int, now: float) -> Span | None:
        """Return the next run of a class, if it is within LOOK_BYTES."""
        released, at, looked = self._topic.released, self.at[number], 0
        while at < released and looked < LOOK_BYTES:
            segment = self._segment(number, at)
            if segment is None or segment.first >= released:
                at = released
                break
            at = max(at, segment.first)
            dropped, kept_from = self._topic.dropped.at_or_above(at, released)
            if dropped <= at:
                at = max(at, kept_from)
                continue
            start, stop = at - segment.first, min(segment.end, dropped) - segment.first
            if not segment.is_for(self._channel):
                is_found = False
                if number == NORMAL:  # each message once
                    self._count_passed(segment, at, segment.first + stop)
            elif segment.delay_ms:
                is_found = number == NORMAL and self._is_due(segment, at, now)
            else:
                start, stop = self._run(segment, number, start, stop)
                is_found = start < stop
            if is_found:
                at = segment.first + start
                self._found[number] = Span(segment, start, stop)
                break
            looked += len(segment.frames)
            at = min(segment.end, dropped)
            if segment.delay_ms and segment.is_for(self._channel):
                if number == NORMAL:
                    self.depths.take(NORMAL, segment.first + start, min(at, self._replays()))
                at = segment.end
                self._end = max(self._end, at)  # what was held there is not to be held again
        self.at[number] = at
        return self._found[number]

    def _segment(self, number: int, sequence: int) -> Segment | None:
        """Return the segment that contains `sequence` or follows it, for the reader of a class."""
        ahead = self._ahead[number]
        while ahead and ahead[-1].end <= sequence:
            ahead.pop()
        if not ahead:
            ahead = self._ahead[number] = self._topic.log.following(sequence)
            ahead.reverse()
        return ahead[-1] if ahead else None

    def _run(self, segment: Segment, number: int, start: int, stop: int) -> tuple[int, int]:
        """Return the first run of a class between two indexes; an empty one for none."""
        if segment.headers is None:
            return (start, stop) if number == NORMAL else (stop, stop)
        classes = self._classes_of(segment, segment.headers, number)
        first = classes.find(number, start, stop)
        if first < 0:
            return stop, stop
        rest = classes[first:stop]
        return first, first + len(rest) - len(rest.lstrip(_CLASS_BYTES[number]))

    def _classes_of(self, segment: Segment, headers: Sequence[bytes], number: int) -> bytes:
        """Return the class of each message. The reader of a class remembers those of its last segment."""
        last, classes = self._read[number]
        if last is not segment:
            classes = self._decoded(headers)
            self._read[number] = segment, classes
        return classes

    def classes_in(self, segment: Segment) -> bytes:
        """Return the class of each message as their reader has it: of deferred ones of a replay, normal."""
        if segment.headers is None or segment.delay_ms:
            return _CLASS_BYTES[NORMAL] * segment.count
        return self._decoded(segment.headers)

    def _decoded(self, headers: Sequence[bytes]) -> bytes:
        try:
            return bytes(map(self._cache.__getitem__, headers))
        except KeyError:
            return bytes(map(self._class_of, headers))

    def _class_of(self, encoded: bytes) -> int:
        if encoded not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[encoded] = class_of(encoded)
        return self._cache[encoded]
