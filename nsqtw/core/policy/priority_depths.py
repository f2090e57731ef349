"""
Counts of the messages of each class that wait in the log for a channel with priorities.

    log   h n n | l  h  n  l  n  h  l  n | n  h  l  n  h | n  l  h  n |       counted: high 1, normal 2, low 4
               low             normal          high    counted_to   released

Theory of operation. A message counts if it is between the position of its class and `counted_to`. So a delivery
subtracts, and a release that begins at `counted_to` is added. Where it begins behind it, because the policy is new, the
channel was moved, or a process before this one released more than it saved, the log is looked through from there when
the counts are asked for: LOOKS parts at once, the others one at a time by a timer. Until then the counts are not known.
They are saved with the positions.

Messages that wait for another delivery, and deferred ones, have no class. Deferred ones in the log of a replay count as
normal until they are passed, as in the depth. Messages that the medium lost count until the position of their class
is behind them. When more messages are delivered than were counted, all is counted anew.

Performance: called once per commit and per span, for channels with priorities only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError

LOOKS: Final = 4
"""Parts of the log, of SEGMENT_BYTES each, that are looked through for one answer."""
_SECONDS: Final = 0.005
"""Between two more parts: a long log is to take little of the time of a broker."""


class PriorityDepths(Timer):
    """
    The counts of `channel` in `topic`. `at` are the positions of the classes. `classes_of` returns the class of each
    message of a segment, `replays` the sequence below which deferred messages are read from the log.
    """

    def __init__(
        self,
        topic: TopicLog,
        channel: str,
        at: list[int],
        classes_of: Callable[[Segment], bytes],
        replays: Callable[[], int],
    ) -> None:
        super().__init__()
        self._topic = topic
        self._channel = channel
        self._at = at
        self._classes_of = classes_of
        self._replays = replays
        self.counts = [0] * len(at)
        self.counted_to = min(at)

    def recount(self) -> None:
        """The positions have changed, or the messages between them."""
        self.counts = [0] * len(self._at)
        self.counted_to = min(self._at)

    def restore(self, counts: Sequence[int], counted_to: int) -> None:
        """Become what was saved with the positions."""
        self.counts, self.counted_to = [*counts], counted_to

    def close(self) -> None:
        """The counts are not needed any more."""
        self._topic.context.timers.cancel(self)

    def known(self) -> list[int] | None:
        """Return how many messages of each class wait; None while the log is looked through."""
        try:
            is_done = self._look(LOOKS)
        except BackendError:  # the reader of the channel meets it, too, and logs it
            return None
        if not is_done:
            self._topic.context.timers.schedule(0.0, self)
            return None
        self._forget_lost()
        return [*self.counts]

    def on_timer(self, now: float) -> float | None:
        """Timer API: look through the next part of the log."""
        try:
            return None if self._look(1) else now + _SECONDS
        except BackendError:
            return None

    def on_release(self, segments: Sequence[Segment], start: int) -> None:
        """These were released, from the sequence `start` on."""
        if self.counted_to >= start:
            self._forget_lost()
            for segment in segments:
                self._add(segment, max(segment.first, self.counted_to), segment.end)
            self.counted_to = max(self.counted_to, self._topic.released)

    def take(self, number: int, start: int, stop: int) -> None:
        """Messages of a class that are one after the other do not wait any more."""
        self._subtract(number, max(0, min(stop, self.counted_to) - start))

    def take_of(self, number: int, segment: Segment, start: int, stop: int) -> None:
        """Messages of a class do not wait any more: those between two sequences of a segment."""
        stop = min(stop, self.counted_to)
        if start < stop:
            classes, first = self._classes_of(segment), segment.first
            self._subtract(number, classes.count(number, start - first, stop - first))

    # -- inside

    def _subtract(self, number: int, count: int) -> None:
        """Some messages of a class do not wait any more."""
        self.counts[number] -= count
        if self.counts[number] < 0:  # a publish that was refused after its write is in the log
            self.recount()

    def _look(self, looks: int) -> bool:
        """Count the messages in so many parts of the log. Returns whether all are counted. BackendError."""
        log, released = self._topic.log, self._topic.released
        self.counted_to = max(self.counted_to, min(self._at))
        while self.counted_to < released:
            if not looks:
                return False
            looks -= 1
            start = self.counted_to
            segments = log.read(start, SEGMENT_BYTES)
            if self.counted_to < start:  # the read found that messages are lost: `recount`
                continue
            for segment in segments:
                low, high = max(segment.first, self.counted_to), min(segment.end, released)
                for first, end in self._topic.dropped.between(low, high):
                    self._add(segment, low, first)
                    low = end
                self._add(segment, low, high)
            self.counted_to = min(segments[-1].end, released) if segments else released
        return True

    def _add(self, segment: Segment, start: int, stop: int) -> None:
        """Count the messages of a segment between two sequences that the channel has not read."""
        if segment.delay_ms:
            stop = min(stop, self._replays())
        if start >= stop or not segment.is_for(self._channel):
            return
        classes, first = self._classes_of(segment), segment.first
        for number, position in enumerate(self._at):
            if position < stop:
                self.counts[number] += classes.count(number, max(start, position) - first, stop - first)

    def _forget_lost(self) -> None:
        """Nothing of a class waits before its position, whatever was counted."""
        self.counts = [
            count if position < self.counted_to else 0 for count, position in zip(self.counts, self._at, strict=True)
        ]
