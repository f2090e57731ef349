"""
An ephemeral channel's position: a short queue in memory, filled at each release.

It keeps nothing in the log and is never saved: waiting, deferred and in-flight messages refer to their segments. At
most `mem_queue_size` messages wait, first in, first out; a requeued one waits behind all others. A message for which
there is no room, also a requeued one, is dropped and counted. Size 0 is a rendezvous: only as many messages enter as
ready consumers can take at that instant.
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count, islice

from nsqtw.core.checkpoint import HeldRow
from nsqtw.core.in_flight import Delivery, delivered_sequence
from nsqtw.core.place import Place
from nsqtw.core.position import Redelivery
from nsqtw.core.segment import Segment, Span, timestamp_ns_of

_OLDEST_OF = 1000
"""Requeued messages that are looked at for the oldest one."""


class EphemeralQueue:
    """
    The position of one ephemeral channel, whose name is `channel`. `room` tells how many messages its ready consumers
    could take now.
    """

    backend_depth = 0
    has_rows = False
    is_being_saved = False

    def __init__(self, mem_queue_size: int, room: Callable[[], int], channel: str = "") -> None:
        self.dropped_count = 0
        self._channel = channel
        self._mem_queue_size = mem_queue_size
        self._room = room
        self._unread: deque[Span] = deque()
        self._unread_count = 0
        self._taken_total = 0
        self._redeliveries: deque[tuple[int, Redelivery]] = deque()  # how many unread ones are taken first, in all
        self._deferred: list[tuple[float, int, Redelivery]] = []
        self._tie = count()

    def places(self) -> dict[Place, int]:
        return {
            Place.UNREAD: self._unread_count,
            Place.REQUEUED: len(self._redeliveries),
            Place.DEFERRED: len(self._deferred),
        }

    @property
    def depth(self) -> int:
        return self._unread_count + len(self._redeliveries)

    @property
    def available(self) -> int:
        return self.depth

    @property
    def deferred_count(self) -> int:
        return len(self._deferred)

    def oldest_ns(self) -> int | None:
        """Return when the oldest message that could be delivered now was published, by its timestamp; None for none."""
        ready = [(again.segment, again.at) for _, again in islice(self._redeliveries, _OLDEST_OF)]
        if self._unread:
            segment, start, _ = self._unread[0]
            ready.append((segment, start))
        return min((timestamp_ns_of(segment.frames, segment.offsets[index]) for segment, index in ready), default=None)

    def release(self, segments: list[Segment], now: float) -> float | None:
        for segment in segments:
            if segment.channel and segment.channel != self._channel:
                continue
            if segment.delay_ms:
                due = now + segment.delay_ms / 1000
                for index in range(segment.count):
                    self._defer(Redelivery(segment.first + index, 0, segment, index), due)
            else:
                fitting = max(0, min(segment.count, self._free()))
                if fitting:
                    self._unread.append(Span(segment, 0, fitting))
                    self._unread_count += fitting
                self.dropped_count += segment.count - fitting
        return self._deferred[0][0] if self._deferred else None

    def next_span(self, now: float) -> Span | None:
        if not self._unread:
            return None
        segment, start, stop = self._unread[0]
        if self._redeliveries:
            stop = min(stop, start + self._redeliveries[0][0] - self._taken_total)
        return Span(segment, start, stop)

    def advance(self, count: int) -> None:
        segment, start, stop = self._unread.popleft()
        if start + count < stop:
            self._unread.appendleft(Span(segment, start + count, stop))
        self._unread_count -= count
        self._taken_total += count

    def pass_next(self, count: int) -> None:
        self.advance(count)

    def next_redelivery(self) -> Redelivery | None:
        if self._redeliveries and self._redeliveries[0][0] <= self._taken_total:
            return self._redeliveries.popleft()[1]
        return None

    def redelivered(self, redelivery: Redelivery) -> None:
        """Nothing to record: the Delivery has all that is needed."""

    def finish(self, sequence: int) -> None:
        """Nothing to do: messages in flight have no rows."""

    def take_out(self, sequence: int, attempts: int, place: Place, held: HeldRow | None = None) -> None:
        """Nothing to do: nothing of it survives the process."""

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        self._requeue(_redeliveries(message_id, delivery))

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        self._defer(_redeliveries(message_id, delivery), due)

    def cancel(self, sequence: int, now: float) -> bool:
        kept = [
            entry for entry in self._deferred if entry[2].sequence != sequence or entry[2].attempts or entry[0] <= now
        ]
        is_cancelled = len(kept) < len(self._deferred)
        if is_cancelled:
            self._deferred = kept
            heapify(self._deferred)
        return is_cancelled

    def on_timer(self, now: float) -> float | None:
        while self._deferred and self._deferred[0][0] <= now:
            self._requeue(heappop(self._deferred)[2])
        return self._deferred[0][0] if self._deferred else None

    def empty(self) -> None:
        self._unread.clear()
        self._unread_count = 0
        self._redeliveries.clear()
        self._deferred.clear()

    def next_due(self, now: float) -> float | None:
        return self._deferred[0][0] if self._deferred else None

    def detach(self) -> None:
        self._room = _no_room

    def _free(self) -> int:
        return (self._mem_queue_size or self._room()) - self.depth

    def _requeue(self, redelivery: Redelivery) -> None:
        if self._free() > 0:
            self._redeliveries.append((self._taken_total + self._unread_count, redelivery))
        else:
            self.dropped_count += 1

    def _defer(self, redelivery: Redelivery, due: float) -> None:
        heappush(self._deferred, (due, next(self._tie), redelivery))


def _no_room() -> int:
    """Return the room of a detached queue, which has none."""
    return 0


def _redeliveries(message_id: bytes, delivery: Delivery) -> Redelivery:
    segment = delivery.segment
    assert segment is not None, "a fleeting channel's deliveries name their segment"
    sequence = delivered_sequence(message_id, delivery)
    return Redelivery(sequence, delivery.attempts, segment, sequence - segment.first)
