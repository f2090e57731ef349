"""
Backlog of a topic: the messages above `released`, which its channels may not read yet.

Theory of operation. The backlog grows while the topic is paused, waits for its channels or has none. After that durable
channels read the messages in the log, so the backlog only records the deferred ones (`waiting`): their delay starts at
the release, and no channel has to search the log for them then. It also records those that are for one channel only:
the others do not count them. An ephemeral channel has no position in the log: it is
given the messages as segments, as many as it has memory for. An ephemeral topic keeps no more of them than that.

Performance: called once per deferred publish and per segment of one.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice, repeat
from operator import attrgetter
from typing import NamedTuple

from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import Awaited
from nsqtw.core.checkpoint import Waiting
from nsqtw.core.segment import Segment
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError


class Direction(NamedTuple):
    """The only channel that gets a run, "" for all; `is_deferred`: a channel skips its messages in the log."""

    channel: str
    is_deferred: bool


class Backlog:
    """The backlog of `topic`."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self.waiting: list[Waiting] = []
        """Runs of deferred messages, ascending, and with a delay of 0 of others that are for one channel only."""
        self._may_be_directed = False
        """Whether a run may be for one channel only, which its segments know."""
        self._last_channel = ""
        """The only channel that gets the last run."""

    def restore(self, waiting: Iterable[Waiting]) -> None:
        """Continue with the runs that were saved."""
        self.waiting = list(waiting)
        self._may_be_directed = bool(self.waiting)

    def on_append(self, segment: Segment) -> None:
        """Messages that are deferred, or for one channel only, were appended to the log."""
        runs, run = self.waiting, Waiting(segment.first, segment.count, segment.delay_ms)
        last = runs[-1] if runs else None
        is_same_channel, self._last_channel = segment.channel == self._last_channel, segment.channel
        if segment.channel:
            self._may_be_directed = True
        if (
            last is not None
            and is_same_channel
            and (last.first + last.count, last.delay_ms) == (run.first, run.delay_ms)
        ):
            runs[-1] = Waiting(last.first, last.count + run.count, run.delay_ms)
        else:
            runs.append(run)

    def cancel(self, sequence: int) -> bool:
        """Let no channel get a deferred message. Returns whether it is there."""
        place = self._place(sequence)
        if place is None or not self.waiting[place].delay_ms:
            return False
        run = self.waiting[place]
        parts = (
            Waiting(run.first, sequence - run.first, run.delay_ms),
            Waiting(sequence + 1, _end(run) - sequence - 1, run.delay_ms),
        )
        self.waiting[place : place + 1] = [part for part in parts if part.count]
        return True

    def channel_of(self, sequence: int) -> str | None:
        """
        Return the only channel that gets a deferred message, "" for all; None when it is not there. BackendError.
        """
        place = self._place(sequence)
        if place is None or not self.waiting[place].delay_ms:
            return None
        return self._direction(self.waiting[place]).channel if self._may_be_directed else ""

    def forget(self) -> None:
        """The whole backlog is released or dropped."""
        self.waiting.clear()
        self._may_be_directed = False

    def directions(self) -> list[Direction]:
        """
        Return the direction of each run; nothing when no run is for one channel only. BackendError: nothing can be
        released then, because channels would get messages of others, or the same one twice.
        """
        return [self._direction(waiting) for waiting in self.waiting] if self._may_be_directed else []

    def hold_back(
        self, channels: Iterable[Channel], directions: list[Direction], now: float, *, since_publish: bool = False
    ) -> None:
        """
        It is released: every durable channel gets the deferred messages that its `directions` let it have. Their delay
        counts from now, or `since_publish`, which is long ago for what a process before this one took.
        """
        timers = self._topic.context.timers
        for waiting, (only, is_deferred) in zip(self.waiting, directions or repeat(_TO_ALL), strict=False):
            due = (self._published(waiting, now) if since_publish else now) + waiting.delay_ms / 1000
            for channel in channels:
                is_for_it = only in ("", channel.name)
                if not is_for_it:
                    channel.joined_total += waiting.count
                if channel.cursor is None:
                    continue
                if not is_for_it:
                    channel.cursor.drop(waiting.count)
                elif is_deferred:
                    channel.cursor.defer_released(waiting.first, waiting.count, due)
                    timers.schedule(due, channel)
        self.forget()

    @property
    def deferred_count(self) -> int:
        return sum(run.count for run in self.waiting if run.delay_ms)

    def awaited_by(self, channel: str) -> Awaited:
        """
        Return how many ready and deferred messages of it a channel gets. A message that cannot be read is for all.
        """
        directions: list[Direction] = []
        with suppress(BackendError):
            directions = self.directions()
        deferred = others = 0
        for waiting, (only, is_deferred) in zip(self.waiting, directions or repeat(_TO_ALL), strict=False):
            if only not in ("", channel):
                others += waiting.count
            elif is_deferred:
                deferred += waiting.count
        return Awaited(max(0, self._topic.depth - deferred - others), deferred)

    def forgets_delays(self, collected: int) -> bool:
        """
        Return whether nsqd would write what is put now to disk, and with it forget its delay.
        `collected`: how many were put before it in this turn.
        """
        topic = self._topic
        if topic.context.options.keep_deferred or topic.ephemeral or topic.is_flowing:
            return False
        return topic.depth - topic.backend_depth + collected >= topic.mem_queue_size

    # -- for ephemeral channels and topics

    def segments(self) -> list[Segment]:
        """Return the messages that an ephemeral channel has room for. BackendError."""
        topic = self._topic
        parts: list[Segment] = []
        forgotten_below = 0 if topic.context.options.keep_deferred else topic.restored_end
        count, start = 0, topic.released
        while count < max(1, topic.mem_queue_size) and (segments := topic.log.following(start)):
            for segment in segments:
                index = max(0, start - segment.first)
                delay_ms = 0 if segment.first < forgotten_below else segment.delay_ms
                for begin, stop in self._not_cancelled(segment, index):
                    part = segment.part(begin, stop).with_delay(delay_ms)
                    parts.append(part)
                    count += 0 if part.delay_ms else part.count
            start = segments[-1].end
        return parts

    def for_ephemeral(self, channels: Iterable[Channel]) -> list[Segment]:
        """Return them if one of `channels` is ephemeral. BackendError."""
        return self.segments() if any(channel.ephemeral for channel in channels) else []

    def fitting(self, segments: list[Segment]) -> tuple[list[Segment], list[Segment]]:
        """Split `segments` into the part that an ephemeral topic without channels has room for, and the rest."""
        room = self._topic.mem_queue_size - self._topic.depth
        fitting, rest = [], []
        for segment in segments:
            fits = max(0, min(segment.count, room))
            if fits:
                fitting.append(segment.part(0, fits))
            if fits < segment.count:
                rest.append(segment.part(fits, segment.count))
            room -= fits
        return fitting, rest

    # -- inside

    def _place(self, sequence: int) -> int | None:
        """Return the index of the run with a message; None when it is in none."""
        place = bisect_right(self.waiting, sequence, key=_first) - 1
        return None if place < 0 or sequence >= _end(self.waiting[place]) else place

    def _direction(self, waiting: Waiting) -> Direction:
        """Return the direction of a run, which may have been saved. BackendError."""
        record = self._topic.log.find(waiting.first)
        if record is None:
            return _TO_ALL
        segment = record[0]
        return Direction(segment.channel, bool(waiting.delay_ms or segment.delay_ms))

    def _not_cancelled(self, segment: Segment, index: int) -> Iterator[tuple[int, int]]:
        """Iterate over the runs of messages (indexes) from `index` on; of deferred ones, over those that still wait."""
        if not segment.delay_ms:
            yield index, segment.count
            return
        first = segment.first + index
        place = max(0, bisect_right(self.waiting, first, key=_first) - 1)
        for run in islice(self.waiting, place, None):
            begin, stop = max(run.first, first), min(_end(run), segment.end)
            if run.first >= segment.end:
                return
            if begin < stop:
                yield begin - segment.first, stop - segment.first

    def _published(self, waiting: Waiting, now: float) -> float:
        """Return when the last of these deferred messages was published, in the clock of `now`."""
        record = self._topic.log.find(waiting.first + waiting.count - 1)
        return now if record is None else (record[0].timestamp_ns - self._topic.context.wall_offset_ns) / 1e9


_first = attrgetter("first")
_TO_ALL = Direction("", is_deferred=True)


def _end(run: Waiting) -> int:
    return run.first + run.count
