"""
Retention of finished messages of a topic.

Theory of operation. The *floor* is the sequence from which on every message is kept, finished or not; trim never passes
it. `Ages` finds it without reading the log: it has a mark for about every sixty-fourth of what is to be kept, and a
mark records how much was stored before it and until when that was published. The floor is the last mark below which
everything exceeds the limits. So somewhat more is kept than the limits say, and never less: time and bytes are counted
from the floor's mark, and a clock that was set back makes messages look younger, not older.

With both limits a message is dropped as soon as either is exceeded. Messages from before retention was switched on
count as published at that time.

`RetentionPolicy` keeps the ages of one topic current, also when nothing is published: its timer runs when the floor
moves with time.
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nsqtw.core.segment import Segment
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.options.broker import Options
from nsqtw.options.topics import Retention

TopicLimits = tuple[float | None, int | None]
"""Time, in seconds, and bytes that were given to a topic while a broker ran; None: what the options say."""

_MARKS = 64
"""Marks per limit, about, in what is kept."""
_SHORTEST_SECONDS = 0.05
"""Between two looks for a floor that moves with time."""
_MS = 1000


class Mark(NamedTuple):
    """A place in the log."""

    sequence: int
    until_ms: int
    """Everything before it was published until then, wall clock."""
    size: int
    """Bytes of frames and headers stored before the mark, counted from an arbitrary start."""


class Ages:
    """The marks of a log that ends at `end`, as far as `limits` need them; from what `state` gave, or from nothing."""

    def __init__(self, limits: Retention, end: int, state: Iterable[Mark] = ()) -> None:
        self.limits = limits
        *marks, self._end = [*state] or [Mark(end, 0, 0)]
        self._marks = deque(marks if limits else ())

    @property
    def floor(self) -> int | None:
        """Every message from here on is kept; None: no message is kept because of its age."""
        return self._marks[0].sequence if self._marks else None

    def start(self, first: int, end: int, size: int, wall_ms: int) -> None:
        """
        Keep what is there from `first` to `end`, of about `size` bytes, as if it were published now; unless that was
        begun before.
        """
        if self.limits and not self._marks:
            self._marks.append(Mark(first, 0, 0))
            self._end = Mark(end, wall_ms, size)
            if end > first:
                self._marks.append(self._end)

    def on_append(self, segment: Segment) -> None:
        """A segment was appended."""
        if not self._marks:
            return
        limits, end, last = self.limits, self._end, self._marks[-1]
        published_ms = segment.timestamp_ns // 10**6
        if (limits.time and (published_ms - last.until_ms) * _MARKS >= limits.time * _MS) or (
            limits.bytes and (end.size - last.size) * _MARKS >= limits.bytes
        ):
            self._marks.append(Mark(segment.first, end.until_ms, end.size))
        self._end = Mark(segment.end, max(end.until_ms, published_ms), end.size + segment.size)

    def expire(self, wall_ms: int) -> bool:
        """Move the floor as far as the limits allow now. Returns whether it moved."""
        marks, floor = self._marks, self.floor
        while len(marks) > 1 and self._is_over(marks[1], wall_ms):
            marks.popleft()
        if len(marks) == 1 and marks[0].sequence < self._end.sequence and self._is_over(self._end, wall_ms):
            marks[0] = self._end
        return self.floor != floor

    @property
    def next_expiry_ms(self) -> int | None:
        """When the floor next moves with time alone, wall clock; None: never."""
        if not (self.limits.time and self._marks):
            return None
        if len(self._marks) > 1:
            following = self._marks[1]
        elif self._marks[0].sequence < self._end.sequence:
            following = self._end
        else:
            return None
        return following.until_ms + round(self.limits.time * _MS)

    def truncate(self, end: int) -> None:
        """The log ends at `end`, which is earlier than was saved."""
        if end >= self._end.sequence:
            return
        while self._marks and self._marks[-1].sequence > end:
            self._marks.pop()
        self._end = self._end._replace(sequence=end)
        if self.limits and not self._marks:
            self._marks.append(self._end)

    def state(self) -> list[Mark]:
        """Return the marks for the checkpoint."""
        return [*self._marks, self._end] if self._marks else []

    def _is_over(self, mark: Mark, wall_ms: int) -> bool:
        limits = self.limits
        if limits.time and mark.until_ms + limits.time * _MS <= wall_ms:
            return True
        return bool(limits.bytes) and self._end.size - mark.size >= limits.bytes


class RetentionPolicy(Timer):
    """The retention of finished messages of `topic`. From `kept_from()` on the log is complete."""

    def __init__(self, topic: TopicLog, kept_from: Callable[[], int]) -> None:
        super().__init__()
        self._topic = topic
        self._kept_from = kept_from
        self._topic_limits: TopicLimits = (None, None)
        self._ages = Ages(self._limits(), topic.log.end)
        self._ages.start(topic.log.end, topic.log.end, 0, 0)
        self.is_on = bool(self.limits)
        """Whether there are limits."""

    @property
    def limits(self) -> Retention:
        return self._ages.limits

    @property
    def topic_limits(self) -> TopicLimits:
        """The limits that were set while a broker ran."""
        return self._topic_limits

    @property
    def floor(self) -> int | None:
        """Every message from here on is kept; None: no message is kept because of its age."""
        return self._ages.floor

    def follow_options(self, now: float) -> bool:
        """The options may say something else. Returns whether the limits have changed."""
        if self._limits() == self.limits:
            return False
        self.give(self._topic_limits, now)
        return True

    def give(self, limits: TopicLimits, now: float) -> None:
        """Keep it this long from now on."""
        self._topic_limits = limits
        end, state = self._topic.log.end, self._ages.state()
        self._ages = Ages(self._limits(), end, state)
        self.begin(now)

    def restore(self, limits: TopicLimits, state: Iterable[Mark]) -> None:
        """Become what was saved."""
        self._topic_limits = limits
        self._ages = Ages(self._limits(), self._topic.log.end, state)

    def begin(self, now: float) -> None:
        """Start to keep what is there, where that is not done already."""
        topic, self.is_on = self._topic, bool(self.limits)
        wall_ms = topic.context.timestamp_ns(now) // 10**6
        self._ages.start(self._kept_from(), topic.log.end, topic.log.queue.size, wall_ms)
        self._ask(now, wall_ms)

    def on_append(self, segments: Iterable[Segment], now: float) -> None:
        """These were appended to the log."""
        for segment in segments:
            self._ages.on_append(segment)
        if self.limits.time and self.due_at > now + self.limits.time:
            self._ask(now, self._topic.context.timestamp_ns(now) // 10**6)

    def on_timer(self, now: float) -> float | None:
        """Timer API: move the floor; the next checkpoint trims the log."""
        wall_ms = self._topic.context.timestamp_ns(now) // 10**6
        if not self._topic.exiting and self.expire(wall_ms):
            self._topic.touch()
        self._ask(now, wall_ms)
        return None

    def expire(self, wall_ms: int) -> bool:
        """Move the floor as far as the limits allow now. Returns whether it moved."""
        return self._ages.expire(wall_ms)

    def state(self) -> list[Mark]:
        """Return the state that `restore` takes."""
        return self._ages.state()

    def _ask(self, now: float, wall_ms: int) -> None:
        expiry_ms = self._ages.next_expiry_ms
        if expiry_ms is not None and not self._topic.exiting:
            self._topic.context.timers.schedule(now + max(_SHORTEST_SECONDS, (expiry_ms - wall_ms) / _MS), self)

    def _limits(self) -> Retention:
        topic = self._topic
        return Retention() if topic.ephemeral else limits_of(topic.name, self._topic_limits, topic.context.options)


def limits_of(topic: str, topic_limits: TopicLimits, options: Options) -> Retention:
    """Return how long a topic keeps what is finished."""
    limits, (time, size) = options.retention_of(topic), topic_limits
    return Retention(limits.time if time is None else time, limits.bytes if size is None else size)
