"""
A durable channel's position: a place in the log, and the exceptions behind it.

Theory of operation. `next` is the sequence below which everything was handed out. What is unfinished below it is
either in flight on its first delivery, which the consumers' tables know, or has one *held* row here: requeued,
deferred, or in flight again. Everything else below `next` is finished; no list of finished messages exists.

A requeued message waits in `_requeued` with a mark, a place that `next` has to reach first: min(released, next +
mem_queue_size). So one message that fails for ever does not keep RDY 1 busy alone, and does not wait behind ten
million others either. Marks never fall, so a queue in order of arrival is in order of marks.

Depth is counted, not subtracted from sequences, which have gaps: `taken_total` are the messages this cursor will not
cut any more, of the topic's `released_total`. Deferred ones count as taken when they are released, and dropped
ones when they are dropped.

Deferred messages that are released ahead of `next` have held rows, so the log's records of them are passed over. A
channel that was moved has no rows beyond the place it was moved to: below `_replays`, which is where `released` stood
then, it takes deferred messages from the log too, none before its time, counted from when it was published.

`changes()` gives what must be saved since the last time. A row that was born and finished in between leaves no
trace in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from nsqtw.core.consumer import FIRST, Delivery
from nsqtw.core.cut import HeldRow, SavedCursor
from nsqtw.core.position import Again
from nsqtw.core.segment import Segment, Span, sequence_of

if TYPE_CHECKING:
    from nsqtw.core.topic import Topic


_HELD_AT_ONCE = 1000
"""Deferred messages of a replay that get a held row in one turn."""


class Cursor:
    """
    The position of one durable channel of `topic`. A new one starts at `released`. `look_at` has `fall_due` called.
    """

    def __init__(self, topic: Topic, look_at: Callable[[float], None]) -> None:
        self._topic = topic
        self._look_at = look_at
        self.next = topic.released
        self.taken_total = topic.released_total
        self.touched = True
        """Something changed since the last saved cut."""
        self._ahead: list[Segment] = []
        self._held: dict[int, tuple[int, float]] = {}  # sequence -> attempts, due (0.0: not deferred)
        self._requeued: deque[tuple[int, int]] = deque()  # mark, sequence
        self._restored_count = 0  # how many of the oldest requeued ones nsqd would have read from disk
        self._deferred: list[tuple[float, int]] = []  # heap of due, sequence
        # sequence -> whether the last saved cut may have a row of it
        self._changed: dict[int, bool] = {}
        self._in_cut: dict[int, bool] = {}  # what `_changed` was when the cut that is being saved was made
        self._emptied = False
        self._forgotten_from: int | None = None
        self._replays = 0

    @property
    def depth(self) -> int:
        return self._topic.released_total - self.taken_total + len(self._requeued)

    @property
    def backend_depth(self) -> int:
        unread = self._topic.released_total - self.taken_total
        in_memory = min(unread, self._topic.released_in_memory)
        room = self._topic.mem_queue_size - in_memory
        in_memory += max(0, min(len(self._requeued) - self._restored_count, room))
        return max(0, self.depth - in_memory)

    @property
    def deferred_count(self) -> int:
        return len(self._deferred)

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def release(self, segments: list[Segment], now: float) -> float | None:
        for segment in segments:
            if segment.delay_ms:
                self.hold_deferred(segment.first, segment.count, now + segment.delay_ms / 1000)
        return self._deferred[0][0] if self._deferred else None

    def hold_deferred(self, first: int, count: int, due: float) -> None:
        """Released messages that are to wait until `due`."""
        for sequence in range(first, first + count):
            self._hold(sequence, 0, due)
            heappush(self._deferred, (due, sequence))
        self.taken_total += count
        self._touch()

    def drop(self, count: int) -> None:
        """The topic dropped released messages that this cursor has not reached."""
        self.taken_total += count
        self._touch()

    def peek(self, now: float) -> Span | None:
        before = self.next
        span = self._peek(now)
        if self.next != before:
            self._touch()  # a dropped range that is behind all cursors is forgotten: they must be saved with it
        return span

    def _peek(self, now: float) -> Span | None:
        released, most_held = self._topic.released, len(self._deferred) + _HELD_AT_ONCE
        while self.next < released:
            segment = self._segment()
            if segment is None or segment.first >= released:
                self.next = released
                break
            if segment.first > self.next:
                self.next = segment.first
            dropped, kept_again = self._topic.next_dropped(self.next)
            if dropped <= self.next:
                self.next = max(self.next, kept_again)
            elif segment.delay_ms and not self._is_due_again(segment, now):
                self.next = segment.end
                if len(self._deferred) >= most_held:
                    return None  # the rest in the next turn
            else:
                return Span(segment, self.next - segment.first, min(segment.end, dropped) - segment.first)
        # Right unless messages were lost on the medium: then this is where the count is mended.
        if self.taken_total != self._topic.released_total:
            self.taken_total = self._topic.released_total
            self._touch()
        return None

    def advance(self, count: int) -> None:
        self.next += count
        self.taken_total += count
        if self._ahead and self._ahead[-1].end <= self.next:
            self._ahead.pop()  # a cursor that has nothing to do keeps no segment in memory
        self._touch()

    def next_again(self) -> Again | None:
        while self._requeued and self._requeued[0][0] <= self.next:
            _, sequence = self._requeued[0]
            found = self._topic.log.find(sequence)
            self._requeued.popleft()
            if self._restored_count:
                self._restored_count -= 1
            if found is not None:
                return Again(sequence, self._held[sequence][0], *found)
            self._topic.lost(sequence)
            self.finish(sequence)
        return None

    def redelivered(self, again: Again) -> None:
        self._hold(again.sequence, again.attempts + 1, 0.0)

    def finish(self, sequence: int) -> None:
        if self._held.pop(sequence, None) is None:
            return
        if self._changed.get(sequence) is False:
            del self._changed[sequence]
        else:
            self._changed[sequence] = True
        self._touch()

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        self._requeue(_sequence(message_id, delivery), delivery.attempts)

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        sequence = _sequence(message_id, delivery)
        self._hold(sequence, delivery.attempts, due)
        heappush(self._deferred, (due, sequence))

    def fall_due(self, now: float) -> float | None:
        while self._deferred and self._deferred[0][0] <= now:
            _, sequence = heappop(self._deferred)
            self._requeue(sequence, self._held[sequence][0])
        return self._deferred[0][0] if self._deferred else None

    def empty(self) -> None:
        self.next = self._topic.released
        self.taken_total = self._topic.released_total
        self._ahead.clear()
        self._held.clear()
        self._requeued.clear()
        self._restored_count = 0
        self._deferred.clear()
        self._changed.clear()
        self._emptied = True
        self._touch()

    def seek(self, sequence: int) -> None:
        """See `Channel.seek`. BackendError when it cannot be counted what comes then; nothing is changed."""
        topic = self._topic
        unread = topic.reading.count(sequence, topic.released)
        if sequence >= self.next:
            self.empty()
        else:
            self._forget_from(sequence)
        self.next, self._replays = sequence, topic.released
        self.taken_total = topic.released_total - unread
        self._ahead.clear()
        self._touch()

    def unfinished(self) -> list[int]:
        """The sequences with a held row, in any order."""
        return list(self._held)

    def changes(self, name: str, first_deliveries: list[int], wall_ms_at: float) -> SavedCursor:
        """
        What changed since the last call, to be saved. `wall_ms_at` + 1000 * moment is the wall clock in ms.
        """
        saved = SavedCursor(name, next=self.next, taken_total=self.taken_total, emptied=self._emptied)
        saved.first_deliveries = first_deliveries
        saved.replays, saved.forgotten_from = self._replays if self.next < self._replays else 0, self._forgotten_from
        for sequence in self._changed:
            row = self._held.get(sequence)
            if row is None:
                saved.dropped_rows.append(sequence)
            else:
                attempts, due = row
                saved.held.append(HeldRow(sequence, attempts, round(wall_ms_at + due * 1000) if due else 0))
        self._in_cut, self._changed = self._changed, {}
        self._emptied = self.touched = False
        self._forgotten_from = None
        return saved

    def end_of_save(self, saved: SavedCursor, *, failed: bool) -> None:
        """What `changes` gave last is saved; or it `failed`, and the next cut must have it."""
        in_cut, self._in_cut = self._in_cut, {}
        if not failed:
            return
        for sequence, may_be_saved in in_cut.items():
            if may_be_saved or sequence in self._held:
                self._changed[sequence] = may_be_saved
            else:
                self._changed.pop(sequence, None)
        self._emptied = self._emptied or saved.emptied
        self._forgotten_from = _lower(self._forgotten_from, saved.forgotten_from)
        self._touch()

    def restore(self, saved: SavedCursor, wall_ms_at: float) -> None:
        """
        Become what was saved. What was in flight comes back first; `wall_ms_at` as in `changes`. `emptied`
        and `dropped_rows` say which of the rows that are saved are void.
        """
        self.next, self.taken_total, self._replays = saved.next, saved.taken_total, saved.replays
        rows = {row.sequence: row for row in saved.held}
        for sequence in sorted(saved.first_deliveries):
            if sequence not in rows:
                self._hold(sequence, 1, 0.0)
                self._requeued.append((self.next, sequence))
        for row in sorted(saved.held, key=lambda row: row.sequence):
            if row.due_ms:
                due = (row.due_ms - wall_ms_at) / 1000
                self._held[row.sequence] = (row.attempts, due)
                self._deferred.append((due, row.sequence))
            else:
                self._held[row.sequence] = (row.attempts, 0.0)
                self._requeued.append((self.next, row.sequence))
        self._restored_count = len(self._requeued)
        heapify(self._deferred)
        for sequence in saved.dropped_rows:
            self._changed[sequence] = True
        self._emptied = saved.emptied
        self._touch()

    def _segment(self) -> Segment | None:
        """The segment that contains `next` or follows it."""
        while self._ahead:
            segment = self._ahead[-1]
            if self.next < segment.end:
                return segment
            self._ahead.pop()
        self._ahead = self._topic.log.following(self.next)
        self._ahead.reverse()
        return self._ahead[-1] if self._ahead else None

    def _is_due_again(self, segment: Segment, now: float) -> bool:
        """
        Whether deferred messages are to be taken from the log. Those of a replay that are not due yet are held from
        now on.
        """
        if self.next >= self._replays:
            return False
        wall_ns = segment.timestamp_ns + segment.delay_ms * 10**6
        due = (wall_ns - self._topic.broker.wall_offset_ns) / 1e9
        if due > now:
            self.hold_deferred(self.next, segment.end - self.next, due)
            self._look_at(due)
        return due <= now

    def _forget_from(self, start: int) -> None:
        """Forget the held rows from a sequence on, and have the others served before that is come to."""
        self._held = {sequence: row for sequence, row in self._held.items() if sequence < start}
        self._requeued = deque((start, sequence) for _, sequence in self._requeued if sequence < start)
        self._restored_count = min(self._restored_count, len(self._requeued))
        self._deferred = [entry for entry in self._deferred if entry[1] < start]
        heapify(self._deferred)
        self._changed = {sequence: saved for sequence, saved in self._changed.items() if sequence < start}
        self._forgotten_from = _lower(self._forgotten_from, start)

    def _requeue(self, sequence: int, attempts: int) -> None:
        self._hold(sequence, attempts, 0.0)
        mark = min(self._topic.released, self.next + max(1, self._topic.mem_queue_size))
        self._requeued.append((mark, sequence))

    def _hold(self, sequence: int, attempts: int, due: float) -> None:
        if sequence not in self._changed:
            self._changed[sequence] = sequence in self._held
        self._held[sequence] = (attempts, due)
        self._touch()

    def _touch(self) -> None:
        self.touched = True
        self._topic.touch()


def _lower(one: int | None, other: int | None) -> int | None:
    return min((sequence for sequence in (one, other) if sequence is not None), default=None)


def _sequence(message_id: bytes, delivery: Delivery) -> int:
    return sequence_of(message_id) if delivery.sequence == FIRST else delivery.sequence
