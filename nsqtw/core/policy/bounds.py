"""
Bounds of the backlog of a channel: `max_depth`, `max_bytes` and `max_age`.

Theory of operation. The messages that wait count: unread ones, those that wait for another delivery, and deferred ones.
Messages in flight do not. With `overflow = reject` a publish that would take a channel over a bound is refused when it
is put, before it is stored (`TopicBounds.admit`). One that is larger than the bound by itself gets an error of its own,
because a repeat cannot help. Messages that were admitted and are not in the log yet count, in batches: the publishes of
a turn, and those of a commit that is on its way. Messages that a paused topic has not released count too.

With `drop_oldest` a channel drops messages after each release, and when messages that were in flight or held wait
again, until it is within its bounds: first those that wait for
another delivery, in the order of their turns, then unread ones, oldest first, then deferred ones, those first that are
due first. So what was published first goes first, and a deferred message goes when nothing else is left. With
priorities and `max_depth` unread messages of class low go first of all, and those of class high after the normal ones.
The other bounds drop the oldest unread messages of all classes, and the bytes of unread messages are those of the log
from the oldest one on: what was delivered before its turn counts, because it is kept with them, and once more when it
waits for another delivery. A channel that is to be served in this turn drops at the start of the next one what its
consumers did not take. The position moves ahead, and the next checkpoint trims the log. Much to be dropped is dropped
in several turns.

Messages are counted exactly. Bytes are those of frames, 34 for a message beside its body, and of encoded headers. They
are not looked up when they are needed: `core.policy.sizes` knows about how many lie between two positions in the log,
and a message with a pending row counts with the mean size. Age is that of the oldest message that waits and is not
deferred, as in /stats. It is looked up by a timer: at the time when the oldest message reaches `max_age`, and every
sixteenth of it, because messages in flight or deferred may be older and come back. An ephemeral channel has no bounds
here: its queue in memory has one.

Performance: `admit` is called once per publish, `on_append` once per commit, both only for topics with bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

from nsqtw.core.cursor import RETRY_READ_SECONDS, Cursor
from nsqtw.core.policy.sizes import Scan, Sizes
from nsqtw.core.segment import BODY_AT, Segment, Span, timestamp_ns_of
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError, LargerThanBound, Overflow
from nsqtw.interfaces import Waiter
from nsqtw.message_headers import HIGH, LOW, NORMAL
from nsqtw.options.resolution import NO_CHANNEL_POLICY
from nsqtw.options.settings import DROP_OLDEST, ChannelPolicy

MAX_DEPTH, MAX_BYTES, MAX_AGE = "max_depth", "max_bytes", "max_age"

_MAX_STEPS: Final = 64
"""Spans, or pages of pending rows, that are dropped in a turn."""
_MAX_READS: Final = 16
"""About how often a turn may read from the medium for them."""
_ROWS: Final = 1024
_SAMPLED_ROWS: Final = 8
"""Messages with pending rows whose size is looked up when no others are sampled."""
_SCAN_STEPS: Final = 4
"""Blocks of a log that are looked through in a turn."""
_LOOKS: Final = 16
"""Looks for the oldest message within `max_age`."""
_SHORTEST_SECONDS: Final = 0.05
"""Between two looks for the oldest message."""
_SECONDS_WHILE_OLD: Final = 1.0
"""The same, at most, while publishes are refused because of it."""
_NEXT_TURN: Final = 0.001
_NEXT_LOOK: Final = 0.005
"""Between two looks for the oldest message of a channel with priorities, while it is not found."""
_SECONDS_UNTIL_SAVED: Final = 0.1


def bounds_of(policy: ChannelPolicy) -> dict[str, Any]:
    values = {MAX_DEPTH: policy.max_depth, MAX_BYTES: policy.max_bytes, MAX_AGE: policy.max_age}
    return {name: value for name, value in values.items() if value}


class DroppableMessages(Protocol):
    """The messages of a channel that its position in the log has passed, and that are not in flight."""

    def requeued_sequences(self) -> list[int]:
        """Return the sequences of some of those that wait and are not deferred."""

    def drop_requeued(self, count: int) -> list[int]:
        """
        Drop up to `count` of those that wait and are not deferred, those first whose turn it is. Returns them.
        BackendError.
        """

    def drop_these(self, sequences: set[int]) -> None:
        """Drop messages that wait and are not deferred."""

    def drop_deferred(self, count: int) -> list[int]:
        """Drop up to `count` deferred messages, those first that are due first. Returns them. BackendError."""


class BoundedChannel(Protocol):
    """A durable channel, as its bounds see it."""

    name: str

    @property
    def unfinished_count(self) -> int:
        """Messages that it has, those in flight included."""

    @property
    def waiting_count(self) -> int:
        """Messages that it has without those in flight."""

    @property
    def set_aside(self) -> Collection[int]:
        """The sequences of those that wait for their key, or have just become ready: its cursor does not count them."""

    @property
    def droppable(self) -> DroppableMessages:
        """Those that its cursor, or what stands before it, has passed."""

    @property
    def is_to_be_served(self) -> bool:
        """Whether its consumers are given messages at the end of this turn."""


class _Batch:
    """Publishes that were admitted and are not in the log: messages, and their bytes."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = self.size = 0


class TopicBounds:
    """The bounds of the channels of one topic. `count_between` tells how many messages are between two sequences."""

    def __init__(self, topic: TopicLog, count_between: Callable[[int, int], int]) -> None:
        self._topic = topic
        self._count_between = count_between
        self._channels: dict[str, ChannelBounds] = {}
        self._batches: list[_Batch] = []

    def set(self, channel: BoundedChannel, cursor: Cursor, policy: ChannelPolicy) -> ChannelBounds:
        """Give a channel these bounds."""
        bounds = self._channels.get(channel.name)
        if bounds is None:
            bounds = ChannelBounds(self._topic, channel, cursor, self._count_between)
            self._channels[channel.name] = bounds
        bounds.follow(policy)
        return bounds

    def remove(self, name: str) -> bool:
        """Remove the bounds of a channel. Returns whether no channel has bounds now."""
        self._channels.pop(name).close()
        return not self._channels

    def admit(
        self,
        bodies: Sequence[bytes],
        headers: Sequence[bytes] | None,
        waiter: Waiter,
        channel: str,
        *,
        is_first: bool,
    ) -> Waiter | None:
        """
        Return the waiter of a publish, which must be called with its result; None when the publish is refused, and
        `waiter` was told. `is_first`: no other publish waits for the next commit.
        """
        overflow = self.refusal(bodies, headers, channel, is_first=is_first)
        if overflow is not None:
            self._topic.rejected_count += 1
            waiter(overflow)
            return None
        batch = self._batches[-1]
        batch.count += len(bodies)
        batch.size += _size_of(bodies, headers)

        def answered(error: Exception | None) -> None:
            batch.count = batch.size = 0  # one result is that of the whole batch
            waiter(error)

        return answered

    def refusal(
        self, bodies: Sequence[bytes], headers: Sequence[bytes] | None, channel: str, *, is_first: bool
    ) -> Overflow | None:
        """Return why a publish is refused, or None. `is_first`: no other publish waits for the next commit."""
        if is_first or not self._batches:
            self._batches = [*filter(_is_under_way, self._batches), _Batch()]
        count, size = len(bodies), _size_of(bodies, headers)
        count_before = sum([batch.count for batch in self._batches])
        size_before = sum([batch.size for batch in self._batches])
        concerned = [bounds for bounds in self._channels.values() if channel in ("", bounds.name)]
        for bounds in concerned:
            if larger := bounds.never_fits(count, size):
                return larger
        for bounds in concerned:
            if overflow := bounds.refusal(count_before + count, size_before + size):
                return overflow
        return None

    def on_append(self, segments: Sequence[Segment], now: float) -> None:
        """These were appended to the log, or nothing was and what it had is released."""
        for bounds in self._channels.values():
            bounds.on_append(segments, now)


class ChannelBounds(Timer):
    """The bounds of `channel`, whose position is `cursor`."""

    def __init__(
        self, topic: TopicLog, channel: BoundedChannel, cursor: Cursor, count_between: Callable[[int, int], int]
    ) -> None:
        super().__init__()
        self.name = channel.name
        self._topic = topic
        self._channel = channel
        self._cursor = cursor
        self._count_between = count_between
        self._policy = NO_CHANNEL_POLICY
        self._sizes: Sizes | None = None
        """None while they are not known, or not needed."""
        self._scan: Scan | None = None
        self._too_old: int | None = None
        """The sequence of the oldest message when it was found to be older than `max_age`."""
        self._is_to_look_ahead = False
        """Whether messages of a class were dropped, and the positions of the others may be far behind."""
        self._is_restored = False
        """Whether the cursor has been given its saved rows, and has not looked yet at what has become due since."""

    def follow(self, policy: ChannelPolicy) -> None:
        """These are the bounds from now on."""
        log, before = self._topic.log, self._policy.max_bytes
        self._policy, self._too_old = policy, None
        if policy.max_bytes != before:
            is_empty = self._cursor.next >= log.end and not self._channel.unfinished_count
            self._sizes = Sizes(log.end, policy.max_bytes) if policy.max_bytes and is_empty else None
            self._scan = None
        self.look_soon()

    def restored(self) -> None:
        """The cursor was made what was saved, after `follow`: it has other messages now."""
        self._sizes, self._scan, self._is_restored = None, None, True
        self.look_soon()

    def look_soon(self) -> None:
        """The policy is new, or the channel was moved."""
        self._schedule(0.0)

    def close(self) -> None:
        """The channel has no bounds any more, or is deleted."""
        self._topic.context.timers.cancel(self)

    def never_fits(self, count: int, size: int) -> LargerThanBound | None:
        """Return why a publish of `count` messages of `size` bytes would be refused even if nothing waited."""
        policy = self._policy
        if policy.overflow == DROP_OLDEST:
            return None
        if policy.max_depth and count > policy.max_depth:
            return LargerThanBound(self.name, MAX_DEPTH, f"{count} messages", policy.max_depth)
        if policy.max_bytes and size > policy.max_bytes:
            return LargerThanBound(self.name, MAX_BYTES, f"{size} bytes", policy.max_bytes)
        return None

    def refusal(self, count: int, size: int) -> Overflow | None:
        """Return why a publish is refused with which `count` messages of `size` bytes are not in the log yet."""
        policy, topic, cursor = self._policy, self._topic, self._cursor
        if policy.overflow == DROP_OLDEST:
            return None
        if policy.max_depth and self._channel.waiting_count + topic.depth + count > policy.max_depth:
            return Overflow(self.name, MAX_DEPTH)
        if self._sizes is not None and self._bytes(self._sizes, topic.log.end) + size > policy.max_bytes:
            if cursor.is_looking:
                self.look_soon()  # with priorities the oldest message may be behind `next`
            return Overflow(self.name, MAX_BYTES)
        if self._too_old is not None:
            if cursor.next <= self._too_old or cursor.row_count or self._channel.set_aside:
                return Overflow(self.name, MAX_AGE)
            self.look_soon()  # it was delivered
        return None

    def on_append(self, segments: Sequence[Segment], now: float) -> None:
        """These were appended to the log, or what it had is released."""
        if self._sizes is not None:
            for segment in segments:
                size = segment.size
                self._sizes.add(segment.first, segment.end, size if self._counts(segment) else 0)
                self._sizes.sample(segment.count, size)
            self._sizes.forget_below(self._cursor.next)
        if self._policy.max_age:
            self._schedule(now + self._policy.max_age)
        if self._policy.overflow == DROP_OLDEST:
            due = now if self._channel.is_to_be_served else self._carry_out(self._drop, now)
            if due is not None:
                self._schedule(due)

    def on_return(self, now: float) -> None:
        """Messages that were in flight or held wait again. Drop in the next turn what ready consumers do not take."""
        if self._policy.overflow == DROP_OLDEST:
            self._schedule(now + _NEXT_TURN)

    def on_timer(self, now: float) -> float | None:
        """Timer API: look at the oldest message, and go on with what takes several turns."""
        if self._is_restored:
            self._is_restored = False
            return now + _NEXT_TURN
        return self._carry_out(self._look, now)

    # -- inside

    def _bytes(self, sizes: Sizes, stop: int) -> int:
        """Return the bytes of the waiting messages, of the unread ones up to `stop`."""
        cursor = self._cursor
        unread = sizes.between(cursor.next, stop)
        unread -= sum([sizes.between(*emptied) for emptied in self._topic.dropped.between(cursor.next, stop)])
        return unread + round((cursor.row_count + len(self._channel.set_aside)) * sizes.message_size)

    def _counts(self, segment: Segment) -> bool:
        """Return whether the messages of a segment are counted where they are: deferred ones have pending rows."""
        return not segment.delay_ms and segment.channel in ("", self.name)

    def _carry_out(self, work: Callable[[float], float | None], now: float) -> float | None:
        """Call `work`, and return when to be called again: what it returned, or later when the medium fails."""
        try:
            return work(now)
        except BackendError as error:
            self._topic.read_failed(error)
            return now + RETRY_READ_SECONDS

    def _look(self, now: float) -> float | None:
        due = [self._find_sizes(now)]
        if self._policy.max_age:
            due.append(self._look_at_oldest(now))
        if self._policy.overflow == DROP_OLDEST:
            due.append(self._drop(now))
        elif self._sizes is not None and not self._cursor.find_oldest(now):
            due.append(now + _NEXT_LOOK)
        return min([moment for moment in due if moment is not None], default=None)

    def _schedule(self, due: float) -> None:
        self._topic.context.timers.schedule(due, self)

    # -- bytes

    def _find_sizes(self, now: float) -> float | None:
        """Look through the log that was there before the bound, or that the channel was moved back to."""
        topic, cursor = self._topic, self._cursor
        if not self._policy.max_bytes or (self._sizes is not None and self._sizes.start <= cursor.next):
            return None
        if self._scan is None:
            self._sizes = None
            self._scan = Scan(topic.log, cursor.next, self._policy.max_bytes, self._count_between, self._counts)
        for _ in range(_SCAN_STEPS):
            if self._scan.is_done:
                break
            self._scan.step()
        else:
            return now + _NEXT_TURN
        sizes = self._scan.sizes
        if not sizes.message_size:
            rows = cursor.pending_rows(now, deferred=bool(cursor.deferred_count), limit=_SAMPLED_ROWS)
            sequences = [row.sequence for row in rows] or [cursor.next - 1]  # perhaps it is in flight, and waits again
            for record in filter(None, map(topic.log.find, sequences)):
                sizes.sample(1, record[0].part(record[1], record[1] + 1).size)
        self._sizes, self._scan = sizes, None
        return None

    # -- age

    def _look_at_oldest(self, now: float) -> float | None:
        """Drop messages that are too old, or find out whether to refuse publishes. Returns when to look again."""
        max_age = self._policy.max_age
        oldest = self._oldest(now)
        is_old = oldest is not None and self._is_old(oldest, now)
        if not is_old and self._cursor.is_looking:
            return now + _NEXT_LOOK  # publishes are refused, or not, as before
        self._too_old = None
        if self._policy.overflow == DROP_OLDEST:
            if not self._drop_old(now):
                return now + _NEXT_TURN
        elif is_old:
            self._too_old = oldest
            return now + min(_SECONDS_WHILE_OLD, max(_SHORTEST_SECONDS, max_age / _LOOKS))
        if not self._channel.unfinished_count:
            return None
        next_look = max_age / _LOOKS
        if (oldest := self._oldest(now)) is not None:
            next_look = min(next_look, max_age - (self._age(oldest, now) or 0.0))
        return now + max(_SHORTEST_SECONDS, next_look)

    def _oldest(self, now: float) -> int | None:
        """Return the sequence of the oldest message that waits and is not deferred."""
        span = self._cursor.oldest_unread(now)
        sequences = [*self._channel.set_aside]
        if span is not None:
            sequences.append(span.segment.first + span.start)
        requeued = self._cursor.oldest_requeued()
        return min(sequences if requeued is None else [*sequences, requeued], default=None)

    def _age(self, sequence: int, now: float) -> float | None:
        """Return the age of a message in seconds; None when it is not stored any more."""
        record = self._topic.log.find(sequence)
        return None if record is None else self._age_in(*record, now)

    def _age_in(self, segment: Segment, index: int, now: float) -> float:
        timestamp_ns = timestamp_ns_of(segment.frames, segment.offsets[index])
        return self._topic.context.age_ns(timestamp_ns, now) / 1e9

    def _is_old(self, sequence: int, now: float) -> bool:
        age = self._age(sequence, now)
        return age is None or age >= self._policy.max_age

    def _drop_old(self, now: float) -> bool:
        """Drop messages that are too old, as many as a turn has time for. Returns whether there are no more."""
        if (oldest := self._oldest(now)) is None or not self._is_old(oldest, now):
            return True
        cursor, droppable, max_age = self._cursor, self._channel.droppable, self._policy.max_age
        requeued = sorted(droppable.requeued_sequences())
        old_count = bisect_left(requeued, True, key=lambda sequence: not self._is_old(sequence, now))
        if old_count:
            droppable.drop_these(set(requeued[:old_count]))
            if old_count == len(requeued):
                return False
        reads = self._topic.log.reads
        for _ in range(_MAX_STEPS):
            span = cursor.oldest_unread(now)
            if span is None or self._topic.log.reads - reads > _MAX_READS:
                return span is None and not cursor.is_looking
            segment, start, stop = span
            indexes = range(start, stop)
            count = bisect_left(indexes, True, key=lambda index: self._age_in(segment, index, now) < max_age)
            if not count:
                return True
            cursor.drop_oldest(count)
        return False

    # -- dropping

    def _drop(self, now: float) -> float | None:
        """Drop messages until the channel is within its bounds. Returns when to go on; None when it is."""
        reads = self._topic.log.reads
        for _ in range(_MAX_STEPS):
            is_known = self._sizes is None or self._cursor.find_oldest(now)
            count, size = self._excess()
            if not is_known:
                size = 0
            is_within = count <= 0 and size <= 0
            if is_within and is_known and (not self._is_to_look_ahead or self._cursor.find_next(now)):
                self._is_to_look_ahead = False
                return None
            if self._topic.log.reads - reads > _MAX_READS:
                break
            if not is_within and not self._drop_some(count, size, now):
                return now + _SECONDS_UNTIL_SAVED
        return now + _NEXT_TURN

    def _excess(self) -> tuple[int, int]:
        """Return by how many messages, and by how many bytes, the channel is over its bounds."""
        policy = self._policy
        count = self._channel.waiting_count - policy.max_depth if policy.max_depth else 0
        size = 0 if self._sizes is None else self._bytes(self._sizes, self._topic.released) - policy.max_bytes
        return count, size

    def _drop_some(self, count: int, size: int, now: float) -> bool:
        """
        Drop up to `count` messages, or up to `size` bytes where that is more. Returns whether any could be dropped:
        pending rows that are being saved cannot.
        """
        if self._policy.priority and count > 0:
            return self._drop_by_priority(count, now)
        cursor, droppable, sizes = self._cursor, self._channel.droppable, self._sizes
        mean = 0.0 if sizes is None else sizes.message_size
        rows = min(_ROWS, max(1, count, int(size / mean) if mean else 0))
        if droppable.drop_requeued(rows):
            return True
        span = cursor.oldest_unread(now)
        if span is not None:
            cursor.drop_oldest(max(1, min(count, span.stop - span.start), _messages_of(span, size)))
            return True
        return bool(droppable.drop_deferred(rows))

    def _drop_by_priority(self, count: int, now: float) -> bool:
        """
        Drop up to `count` messages, of the lowest class first; those that wait for another delivery have none, and go
        before normal ones. Returns whether any could be dropped: not while the classes are counted.
        """
        cursor, droppable, depths = self._cursor, self._channel.droppable, self._cursor.class_depths
        if depths is None:
            return False
        if not any(depths):
            cursor.find_next(now)  # after damage the depth is too high until nothing is left to read
        if not depths[LOW] and droppable.drop_requeued(min(_ROWS, count)):
            return True
        for number in (LOW, NORMAL, HIGH):
            if depths[number]:
                self._is_to_look_ahead = True
                cursor.drop_of_class(number, count, now)
                return True
        return bool(droppable.drop_deferred(min(_ROWS, count)))


def _size_of(bodies: Sequence[bytes], headers: Sequence[bytes] | None) -> int:
    """Return the bytes of messages in the log."""
    size = sum(map(len, bodies)) + BODY_AT * len(bodies)
    return size if headers is None else size + sum(map(len, headers))


def _is_under_way(batch: _Batch) -> bool:
    return batch.count > 0


def _messages_of(span: Span, size: int) -> int:
    """Return how many messages of a span have `size` bytes, or more; all when they have less."""
    if size <= 0:
        return 0
    segment, start, stop = span
    if segment.headers is None:
        return min(stop, bisect_left(segment.offsets, segment.offsets[start] + size, start, stop)) - start
    offsets, headers = segment.offsets, segment.headers
    ends = [*accumulate(offsets[index + 1] - offsets[index] + len(headers[index]) for index in range(start, stop))]
    return min(stop - start, bisect_left(ends, size) + 1)
