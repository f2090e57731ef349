"""
Reading a topic's log by position, without a channel: the range kept, counts, and the position of a time.

Theory of operation. From `kept_from` on the log has everything that was ever published, except for what was emptied and
what the medium lost. No trim was ever given a higher sequence, because the floor and the cursors of the saved
checkpoint are behind the current ones, and a channel is never moved below. So *earliest* is there. The log may be read
up to `end`: not beyond what is committed, nor beyond what is released. A topic without a channel releases nothing; with
retention it can be read all the same, so a topic that is only read by position needs no channel.

`SequenceRanges` tell what a hole in the log means. Between two runs no message ever was; within one it is lost, and
reported.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from nsqtw.core.checkpoint import TopicState
from nsqtw.core.retention import Mark, RetentionPolicy
from nsqtw.core.segment import Segment, timestamp_ns_of
from nsqtw.core.sequence_ranges import SequenceRanges
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError

_BLOCK_BYTES = 1024 * 1024


class Extract(NamedTuple):
    """A part of a log, `start` to `stop`."""

    start: int
    stop: int
    """The position to continue from."""
    parts: list[Segment | range]
    """Ascending: the messages, and the sequences of those that are lost."""


class LogReader:
    """The readable part of `topic`."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._runs = SequenceRanges(topic.log.end)
        self.retention_policy = RetentionPolicy(topic, lambda: self.kept_from)
        self._watchers: dict[Callable[[], None], None] = {}

    # -- what happens to the topic

    def on_append(self, segments: Iterable[Segment], now: float) -> None:
        """These were appended to the log."""
        if not self._topic.ephemeral:
            for segment in segments:
                self._runs.add(segment.first, segment.count)
            if self.retention_policy.is_on:
                self.retention_policy.on_append(segments, now)

    def save_into(self, state: TopicState, wall_ms: int) -> None:
        """
        Add the state that must outlive the process. Moves the floor, and drops ranges that cannot be read any more.
        """
        self.retention_policy.expire(wall_ms)
        self._runs.forget_below(self.kept_from)
        state.retention_time, state.retention_bytes = self.retention_policy.topic_limits
        state.floor = self.retention_policy.floor
        state.marks = [*self.retention_policy.state()]
        state.runs = self._runs.state()

    def restore(self, state: TopicState, now: float) -> None:
        """Become what was saved; after the channels."""
        self._runs = SequenceRanges(state.end, state.runs)
        self.retention_policy.restore((state.retention_time, state.retention_bytes), map(Mark._make, state.marks))
        self.retention_policy.begin(now)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have it called, once, when there may be more to be read, or the topic is deleted."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        """There may be more to be read."""
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                watcher()

    # -- what is there

    @property
    def kept_from(self) -> int:
        """
        Nothing was trimmed from here on. It is the end of the message before, so that a reader that has read everything
        up to a gap does not miss what is below the gap's end.
        """
        lowest = self._topic.lowest_position
        floor, first = self.retention_policy.floor, int(self._topic.log.queue.first)
        return self._runs.gap_start(max(first, lowest if floor is None else min(lowest, floor)))

    @property
    def end(self) -> int:
        """The end of the readable part. It is never below `kept_from`, where it is while nothing may be read."""
        topic = self._topic
        is_log_only = self.retention_policy.is_on and not topic.has_channels and not topic.paused
        readable = topic.log.end if is_log_only else topic.released
        committed: int = topic.log.queue.end
        return max(min(readable, committed), self.kept_from)

    def count(self, start: int, stop: int) -> int:
        """Return how many messages a channel that goes from `start` to `stop` meets. BackendError."""
        before = self._runs.before(start)
        if before is None:
            count = sum(part.count for part in self._parts(start, stop))
        else:
            count = (self._runs.before(stop) or 0) - before
        for first, end in self._topic.dropped.between(start, stop):
            count -= sum(high - low for low, high in self._runs.parts(first, end))
        return count

    def has_messages(self, start: int, stop: int) -> bool:
        """Return whether the log has a message between two places: not in a gap, emptied, or lost. BackendError."""
        return self.count(start, stop) > 0 and next(self.segments(start, stop), None) is not None

    def read(self, start: int, limit: int) -> Extract:
        """
        Read about `limit` bytes of frames, at least one segment, from `start` or else the oldest message kept.
        BackendError when the medium fails before anything was read.
        """
        end = self.end
        start = position = max(start, self.kept_from)
        parts: list[Segment | range] = []
        while position < end and limit > 0:
            try:
                segments = self._topic.log.read(position, limit)
            except BackendError:
                if parts:
                    break
                raise
            if not segments or segments[0].first >= end:
                parts += self._lost(position, end)
                position = end
                break
            for segment in segments:
                if segment.first >= end or limit <= 0:
                    break
                parts += self._lost(position, segment.first)
                kept = list(self._without_dropped(segment, position, end))
                parts += kept
                limit -= sum(len(part.frames) for part in kept)
                position = min(segment.end, end)
        return Extract(start, max(start, position), parts)

    def segments(self, start: int, stop: int) -> Iterator[Segment]:
        """The messages between two places without those that were emptied, read as they are asked for. BackendError."""
        for part in self._parts(start, stop):
            yield from self._without_dropped(part, start, stop)

    def position_at(self, wall_ms: int) -> int:
        """
        The first message kept that was published then or later, as its sequence; `end` when there is none yet.
        BackendError.
        """
        end = self.end
        low, high = self.kept_from, end
        while low < high:
            middle = (low + high) // 2
            segment = self._segment_at(middle)
            if segment is None or segment.first >= high:
                high = middle
            elif _last_ms(segment) >= wall_ms:
                high = min(middle, max(low, segment.first))
            else:
                low = segment.end
        segment = self._segment_at(low) if low < end else None
        return end if segment is None else min(end, _position_at(segment, low, wall_ms))

    def oldest_ns(self, start: int) -> int | None:
        """Return when the first message from `start` on was published. None when there is none. BackendError."""
        parts = self.read(start, 1).parts
        frames = [(part.frames, part.offsets) for part in parts if isinstance(part, Segment)]
        return timestamp_ns_of(frames[0][0], frames[0][1][0]) if frames else None

    # -- inside

    def _segment_at(self, sequence: int) -> Segment | None:
        """The segment that contains `sequence` or comes next."""
        segments = self._topic.log.read(sequence, 1)
        return segments[0] if segments else None

    def _parts(self, start: int, stop: int) -> Iterator[Segment]:
        while start < stop and (segments := self._topic.log.read(start, _BLOCK_BYTES)):
            for segment in segments:
                low, high = max(segment.first, start), min(segment.end, stop)
                if low < high:
                    yield _part(segment, low, high)
            start = segments[-1].end

    def _without_dropped(self, segment: Segment, start: int, stop: int) -> Iterator[Segment]:
        """Return the parts of a segment between two sequences that were not dropped."""
        low, high = max(segment.first, start), min(segment.end, stop)
        for first, end in self._topic.dropped.between(low, high):
            if low < first:
                yield _part(segment, low, first)
            low = end
        if low < high:
            yield _part(segment, low, high)

    def _lost(self, start: int, stop: int) -> Iterator[range]:
        """The messages in a hole of the log that were there once."""
        for low, high in self._runs.parts(start, stop):
            for first, end in self._topic.dropped.between(low, high):
                if low < first:
                    yield range(low, first)
                low = end
            if low < high:
                yield range(low, high)


def _part(segment: Segment, first: int, stop: int) -> Segment:
    if first == segment.first and stop == segment.end:
        return segment
    return segment.part(first - segment.first, stop - segment.first)


def _last_ms(segment: Segment) -> int:
    return timestamp_ns_of(segment.frames, segment.offsets[segment.count - 1]) // 10**6


def _position_at(segment: Segment, start: int, wall_ms: int) -> int:
    """The first message of a segment, from `start` on, that was published then or later."""
    for index in range(max(0, start - segment.first), segment.count):
        if timestamp_ns_of(segment.frames, segment.offsets[index]) // 10**6 >= wall_ms:
            return segment.first + index
    return segment.end
