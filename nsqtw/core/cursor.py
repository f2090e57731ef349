"""
A durable channel's position: a sequence in the log, and the exceptions below it.

Theory of operation. Every message below the sequence `next` was read. An unfinished message below it is either in
flight on its first delivery, which the tables of the consumers know, or has one *pending row* (`core.pending`), which
has its place. Everything else below `next` is finished; no list of finished messages exists.

With priorities some messages above `next` were delivered, too (`core.policy.priority`).

Requeued messages, and deferred ones that are due, wait in the redelivery queue (`core.redelivery_queue`).

Depth is counted, not subtracted from sequences, which have gaps: `taken_total` counts the messages of the topic's
`released_total` that this cursor has passed. Deferred messages count as taken when they are released, and dropped ones
when they are dropped. Counts are for statistics. They can be wrong, because the log may hold messages that were never
counted (a publish that was refused after its write) and lose messages that were. Delivery goes by sequences alone:
everything from `next` to `released` is delivered (`available`), and a cursor that has reached `released` corrects its
count.

Deferred messages that are released ahead of `next` have pending rows, so their records in the log are skipped. A
channel that was moved has no rows beyond its new position: below `_replays`, which is the value of `released` at the
move, it takes deferred messages from the log too, none before its time, counted from its publish.

A *directed* segment is for one channel only. The cursors of all others pass it, at once if they have nothing else to
read. Its messages count as taken when they are released, and those of a replay from its begin: a bound of a channel
must not see messages that the channel does not get. Where the log of a replay was not looked through for them yet
(`_uncounted`), they count as taken when they are passed.

`changes()` returns what must be saved since the last call. A row that was created and finished in between leaves no
trace in it.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nsqtw.core.checkpoint import CursorState, HeldRow, PendingRow, Phase
from nsqtw.core.due_order import BEFORE_ALL, Key
from nsqtw.core.for_others import ForOthers
from nsqtw.core.in_flight import Delivery, delivered_sequence
from nsqtw.core.pending import Pages, PendingStore
from nsqtw.core.place import Place
from nsqtw.core.policy.priority import PriorityReader
from nsqtw.core.position import Redelivery
from nsqtw.core.redelivery_queue import RedeliveryQueue
from nsqtw.core.segment import Segment, Span
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError
from nsqtw.message_headers import NORMAL

RETRY_READ_SECONDS = 1.0
_MAX_PASSED_AT_ONCE = 1000
"""Deferred messages of a replay that get pending rows, and segments for other channels, in one turn, about."""


class Cursor:
    """
    The position of one durable channel of `topic`, whose name is `channel`. A new one starts at `released`. `pages` has
    its pending rows that are not in memory; None: all are in memory. `schedule` asks for a call of `on_timer`.
    """

    def __init__(
        self, topic: TopicLog, pages: Pages | None, schedule: Callable[[float], None], channel: str = ""
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._schedule = schedule
        self._clock = topic.context.pending_clock
        self.next = topic.released
        self.taken_total = topic.released_total
        self.touched = True
        """Whether anything changed since the last checkpoint."""
        self._ahead: list[Segment] = []
        self._pending = PendingStore(pages, topic.context.page_rows)
        self._redeliveries = RedeliveryQueue(topic, self._pending)
        self._replays = 0
        self._uncounted = (0, 0)
        """The part of a replay in which messages for other channels count as unread."""
        self.dropped_count = 0
        """Messages that a bound of the channel dropped, since the process started."""
        self.priorities: PriorityReader | None = None
        """The part of the log that was read, when it reaches beyond `next`."""

    @property
    def depth(self) -> int:
        return max(0, self._topic.released_total - self.taken_total) + self._redeliveries.count

    @property
    def available(self) -> int:
        return self.depth or int(self.next < self._topic.released)

    @property
    def backend_depth(self) -> int:
        topic, redeliveries = self._topic, self._redeliveries
        unread = topic.released_total - self.taken_total
        if unread <= topic.released_in_memory and not redeliveries.count:
            return 0
        in_memory = min(unread, topic.released_in_memory)
        room = topic.mem_queue_size - in_memory
        in_memory += max(0, min(redeliveries.count - redeliveries.restored_count, room))
        return max(0, self.depth - in_memory)

    @property
    def class_depths(self) -> list[int] | None:
        """See `ChannelBase.class_depths`."""
        priorities = self.priorities
        return None if priorities is None or not priorities.is_on else priorities.depths.known()

    def places(self) -> dict[Place, int]:
        return {
            Place.UNREAD: max(0, self._topic.released_total - self.taken_total),
            Place.REQUEUED: self._redeliveries.count,
            Place.DEFERRED: self._pending.deferred_count,
        }

    @property
    def deferred_count(self) -> int:
        return self._pending.deferred_count

    @property
    def has_rows(self) -> bool:
        return self._pending.has_rows_in_memory

    @property
    def is_being_saved(self) -> bool:
        return self._pending.is_blocked and self.is_waiting_for_save(reads_log=True)

    def is_waiting_for_save(self, *, reads_log: bool) -> bool:
        """`is_being_saved`, for a reader of the log or one that reads no further in it now."""
        return self._redeliveries.is_being_saved and (not reads_log or self.next >= self._topic.released)

    @property
    def redelivery_count(self) -> int:
        """Messages that are ready and are not unread ones."""
        return self._redeliveries.count

    @property
    def row_count(self) -> int:
        """Waiting messages that are not unread ones: for another delivery, or deferred."""
        return self.redelivery_count + self._pending.deferred_count

    @property
    def has_unread(self) -> bool:
        """Whether messages from `next` on could be delivered now."""
        return self._topic.released_total > self.taken_total

    def oldest_requeued(self) -> int | None:
        """Return the lowest of `requeued_sequences`."""
        return min(self.requeued_sequences(), default=None)

    def requeued_sequences(self) -> list[int]:
        """Return the sequences of the first messages that wait for another delivery."""
        return self._redeliveries.first_sequences()

    def release(self, segments: list[Segment], now: float) -> float | None:
        for segment in segments:
            if not segment.is_for(self._channel):
                self.drop(segment.count)
            elif segment.delay_ms:
                self.defer_released(segment.first, segment.count, now + segment.delay_ms / 1000)
        return self.next_due(now)

    def see_release(self, segments: list[Segment], start: int) -> None:
        """
        `segments` are released, from `start` on. Pass those for other channels if everything before is read. With
        priorities, count the messages of each class.
        """
        for segment in segments if self.next >= start else ():
            if segment.is_for(self._channel):
                break
            self._pass_over(segment, segment.end)
            self._move_priorities()
            self._touch()
        if self.priorities is not None:
            self.priorities.depths.on_release(segments, start)

    def defer_released(self, first: int, count: int, due: float) -> None:
        """Released messages that are to wait until `due`."""
        self._pending.defer_run(first, count, self._clock.due_ms(due))
        self.taken_total += count
        self._touch()

    def set_priority(self, *, is_on: bool) -> None:
        """Deliver by priority from now on, or in the order of the log."""
        if self.priorities is None and is_on:
            self.priorities = self._new_priorities()
            self._redeliveries.serve_at_once(self._reached)
        if self.priorities is not None:
            self.priorities.switch(is_on=is_on)
        self._touch()

    def drop(self, count: int) -> None:
        """Released messages that this cursor has not reached were dropped, or are not for its channel."""
        self.taken_total += count
        self._touch()

    def drop_lost(self, count: int) -> None:
        """Released messages that this cursor has not reached are not in the log any more."""
        self.drop(count)
        if self.priorities is not None:
            self.priorities.depths.recount()

    def next_span(self, now: float) -> Span | None:
        before, priorities = self.next, self.priorities
        span = (
            self._skip_to_span(now) if priorities is None else self._found(priorities, priorities.next_span(now), now)
        )
        if self.next != before:
            self._touch()  # a dropped range that is behind all cursors is forgotten: they must be saved with it
        return span

    def oldest_unread(self, now: float) -> Span | None:
        """
        Return unread messages from the oldest one on, within one segment. With priorities some of them may be delivered
        already; then it is None, too, when the oldest is not found in this turn (`is_looking`). BackendError.
        """
        priorities = self.priorities
        if priorities is None:
            return self.next_span(now)
        before, span = self.next, self._found(priorities, priorities.oldest(now), now)
        if self.next != before:
            self._touch()
        return span

    def find_oldest(self, now: float) -> bool:
        """Look for the oldest unread message, and return whether it is found if there is one. BackendError."""
        if self.is_looking:
            self.oldest_unread(now)
        return not self.is_looking

    @property
    def is_looking(self) -> bool:
        """Whether the oldest unread message is not found yet."""
        return self.priorities is not None and self.priorities.is_looking

    def _found(self, priorities: PriorityReader, span: Span | None, now: float) -> Span | None:
        """`priorities` have looked for a span. Return it, or the next one when they are not needed any more."""
        self.next = priorities.next
        if priorities.is_done:
            self._end_priorities()
            self._redeliveries.serve_at_once(self._reached)
            return self._skip_to_span(now)
        if span is None and self.next >= self._topic.released:
            self._mend_count()
        return span

    def _skip_to_span(self, now: float) -> Span | None:
        released, most_taken = self._topic.released, self.taken_total + _MAX_PASSED_AT_ONCE
        while self.next < released:
            segment = self._segment()
            if segment is None or segment.first >= released:
                self.next = released
                break
            if segment.first > self.next:
                self.next = segment.first
            dropped, kept_from = self._topic.dropped.at_or_above(self.next, released)
            if dropped <= self.next:
                self.next = max(self.next, kept_from)
            elif segment.channel and segment.channel != self._channel:
                self._pass_over(segment, min(segment.end, dropped))
                most_taken -= 1
                if self.taken_total >= most_taken:
                    return None  # the rest in the next turn
            elif segment.delay_ms and not self._is_due_for_replay(segment, self.next, now):
                self.next = segment.end
                if self.taken_total >= most_taken:
                    return None
            else:
                return Span(segment, self.next - segment.first, min(segment.end, dropped) - segment.first)
        self._mend_count()
        return None

    def _mend_count(self) -> None:
        """Nothing is left to read. The count is right unless messages were lost on the medium."""
        if self.taken_total != self._topic.released_total:
            self.taken_total = self._topic.released_total
            self._touch()

    def advance(self, count: int) -> None:
        if self.priorities is None:
            self.next += count
        else:
            self.priorities.advance(count)
            self.next = self.priorities.next
        self.taken_total = min(self.taken_total + count, self._topic.released_total)
        if self._ahead and self._ahead[-1].end <= self.next:
            self._ahead.pop()  # a cursor that has nothing to do keeps no segment in memory
        self._touch()

    def pass_next(self, count: int) -> None:
        self.advance(count)

    def next_redelivery(self) -> Redelivery | None:
        if self._redeliveries.is_empty:  # mostly
            return None
        while (sequence := self._redeliveries.first(self._reached)) is not None:
            record = self._topic.log.find(sequence)
            self._redeliveries.take()
            if record is not None:
                return Redelivery(sequence, self._pending.attempts(sequence), *record, self.is_interrupted(sequence))
            self._topic.lost(sequence)
            self.finish(sequence)
        return None

    def drop_requeued(self, count: int) -> list[int]:
        """
        Drop up to `count` messages that wait for another delivery, those first whose turn it is. Returns them.
        BackendError, and none is dropped.
        """
        dropped = self._redeliveries.drop(count, self._reached)
        if dropped:
            self._count_dropped(len(dropped))
        return dropped

    def drop_these(self, sequences: set[int]) -> None:
        """Drop messages that wait for another delivery."""
        self._redeliveries.remove(sequences)
        for sequence in sequences:
            self.finish(sequence)
        self._count_dropped(len(sequences))

    def drop_unread(self, count: int) -> None:
        """Drop the first `count` messages of the last `next_span`."""
        self.advance(count)
        self.dropped_count += count

    def drop_oldest(self, count: int) -> None:
        """
        Drop the first `count` messages of the last `oldest_unread`; with priorities those of the class of the first.
        """
        if self.priorities is None:
            self.drop_unread(count)
        else:
            self._count_passed_of_class(self.priorities, self.priorities.drop_oldest(count))

    def drop_of_class(self, number: int, count: int, now: float) -> None:
        """With priorities, drop up to `count` unread messages of a class, oldest first. BackendError."""
        if self.priorities is not None:
            self._count_passed_of_class(self.priorities, self.priorities.drop(number, count, now))

    def _count_passed_of_class(self, priorities: PriorityReader, dropped: int) -> None:
        """The position of a class has passed messages that are dropped."""
        self.next = priorities.next
        self.taken_total = min(self.taken_total + dropped, self._topic.released_total)
        self._count_dropped(dropped)

    def find_next(self, now: float) -> bool:
        """Look for the next message of each class. Returns whether all are found that there are. BackendError."""
        self.next_span(now)
        return self.priorities is None or self.priorities.has_found_each

    def drop_deferred(self, count: int) -> list[int]:
        """Drop up to `count` deferred messages, those first that are due first. Returns them. BackendError."""
        dropped = self._pending.drop_soonest(count)
        self._count_dropped(len(dropped))
        return dropped

    def first_requeued(self, *, at_once: bool = False) -> int | None:
        """Return the requeued message whose turn has come; with `at_once` the first one there is. BackendError."""
        return self._redeliveries.first(self._reached, at_once=at_once)

    def take_requeued(self) -> None:
        """Remove what `first_requeued` returned. It keeps its pending row."""
        self._redeliveries.take()

    def redelivered(self, redelivery: Redelivery) -> None:
        self._pending.put(redelivery.sequence, redelivery.attempts + 1, Place.IN_FLIGHT)
        self._touch()

    def attempts(self, sequence: int) -> int:
        """Return how often a message that was requeued or set aside was delivered."""
        return self._pending.attempts(sequence)

    def is_interrupted(self, sequence: int) -> bool:
        """Return whether the last delivery of such a message has not failed: see `interrupt`."""
        return self._pending.is_interrupted(sequence)

    def interrupt(self, sequences: Sequence[int]) -> None:
        """The last deliveries of these messages, which have pending rows, are over and have not failed."""
        self._pending.interrupt(sequences)

    @property
    def interrupted(self) -> list[int]:
        """The sequences of all such messages, in any order."""
        return self._pending.interrupted

    def set_aside(self, sequences: Sequence[int]) -> None:
        """Messages that `advance` passed were not delivered: they wait outside of the cursor."""
        self._pending.set_aside(sequences)

    def move(self, sequence: int, place: Place) -> None:
        """A message that waits outside of the cursor is set aside, or the ready head of its key."""
        self._pending.move(sequence, place)

    def take_set_aside(self, sequences: Sequence[int]) -> None:
        """They are delivered for the first time. Until that fails they have no rows."""
        for sequence in sequences:
            self._pending.finish(sequence, Place.IN_FLIGHT)
        self._touch()

    def take_back(self, sequences: list[int]) -> None:
        """Deliver next what waits outside of the cursor."""
        self._redeliveries.take_back(sequences, self._reached)

    def entered_rows(self) -> Iterator[list[PendingRow]]:
        """
        Return the pending rows that are not those of messages deferred by their publishers, in pages: see
        `PendingStore.row_pages`. BackendError.
        """
        return ([row for row in page if row.attempts or not row.due_ms] for page in self._pending.row_pages())

    def finish(self, sequence: int) -> None:
        if self._pending.finish(sequence):
            self._touch()

    def take_out(self, sequence: int, attempts: int, place: Place, held: HeldRow | None = None) -> None:
        self._pending.put(sequence, attempts, place, held)
        self._touch()

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        sequence = delivered_sequence(message_id, delivery)
        self._pending.put(sequence, delivery.attempts, Place.REQUEUED)
        self._redeliveries.add(sequence, self._reached, self._end)
        self._touch()

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        self._pending.defer(delivered_sequence(message_id, delivery), delivery.attempts, self._clock.due_ms(due))
        self._touch()

    def cancel(self, sequence: int, now: float) -> bool:
        is_cancelled = self._pending.cancel(sequence, self._clock.ms_at(now))
        if is_cancelled:
            self._touch()
        return is_cancelled

    def on_timer(self, now: float) -> float | None:
        try:
            self._redeliveries.add_due(self._clock.ms_at(now), self._reached, self._end)
        except BackendError as error:
            self._topic.read_failed(error)
            return now + RETRY_READ_SECONDS
        return self.next_due(now)

    def next_due(self, now: float) -> float | None:
        due_ms = self._pending.next_due_ms(self._clock.ms_at(now))
        return None if due_ms is None else self._clock.moment(due_ms)

    def detach(self) -> None:
        self._schedule = _schedule_nothing
        self._end_priorities()

    def empty(self) -> None:
        self.next = self._topic.released
        self.taken_total = self._topic.released_total
        self._uncounted = (0, 0)
        self._ahead.clear()
        self._move_priorities()
        self.forget_pending()

    def forget_pending(self) -> None:
        """Finish all requeued and deferred messages."""
        self._pending.forget()
        self._redeliveries.forget()
        self._touch()

    def seek(self, sequence: int, unread: int, counted_to: int, *, skips: bool) -> None:
        """
        See `Channel.seek`. `unread` messages are between `sequence` and `released`, those for other channels included
        from `counted_to` on. `skips`: nothing before `sequence` stays unfinished.
        """
        assert self._pending.phase is Phase.BETWEEN, "a channel is moved during a checkpoint"
        topic = self._topic
        if skips:
            self.forget_pending()
        else:
            self._pending.forget_from(sequence)
            self._redeliveries.forget_from(sequence)
        self.next, self._replays = sequence, topic.released
        self._uncounted = (counted_to, topic.released) if counted_to < topic.released else (0, 0)
        self.taken_total = topic.released_total - unread
        self._ahead.clear()
        self._move_priorities()
        self._redeliveries.serve_at_once(self._reached)  # marks far ahead would have it wait for all that is replayed
        self._touch()

    def count_others(self, others: ForOthers) -> int:
        """
        Count messages for other channels that the last `seek` could not count. Returns how many there were, with those
        that were passed meanwhile.
        """
        replayed, unread = self._uncounted, self.uncounted
        self._uncounted = (0, 0)
        self.taken_total = min(self.taken_total + others.count(*unread), self._topic.released_total)
        self._touch()
        return others.count(*replayed)

    @property
    def uncounted(self) -> tuple[int, int]:
        """The part of the log that is still to be read, and in which messages for other channels count as unread."""
        start, stop = self._uncounted
        passed = self.next if self.priorities is None else self.priorities.at[NORMAL]
        return (max(start, passed), stop) if passed < stop else (0, 0)

    def waiting_below(self, sequence: int) -> tuple[int, int]:
        """
        Return how many messages before `sequence` are ready and how many are deferred, of those that have pending rows.
        BackendError.
        """
        due, deferred = self._pending.waiting_below(sequence)
        return due + self._redeliveries.count_below(sequence), deferred

    def pending_rows(self, now: float, *, deferred: bool, limit: int, after: Key = BEFORE_ALL) -> list[PendingRow]:
        """
        Return some of the pending rows for inspection, by due time, those behind `after`: deferred ones, or the ready
        ones and those in flight again. BackendError.
        """
        return self._pending.some(self._clock.ms_at(now), deferred=deferred, limit=limit, after=after)

    def due_at(self, row: PendingRow) -> float:
        """Return when a deferred row is due, in the monotonic clock."""
        return self._clock.moment(row.due_ms)

    @property
    def replays(self) -> int:
        """Below this sequence deferred messages are taken from the log."""
        return self._replays

    def pending_in_memory(self) -> list[int]:
        """
        The sequences of the pending rows in memory, in any order: for a channel of an ephemeral topic, all of them.
        """
        return self._pending.sequences

    @property
    def lowest_unfinished(self) -> int:
        """Under it nothing is unfinished but first deliveries, and what was there when the process started."""
        return int(min(self.next, self._pending.lowest))

    def changes(self, name: str, first_deliveries: list[int]) -> CursorState:
        """Return what changed since the last call, to be saved."""
        taken_total = min(self.taken_total, self._topic.released_total)
        state = CursorState(name, next=self.next, taken_total=taken_total)
        state.first_deliveries = first_deliveries
        state.replays = self._replays if self.next < self._replays else 0
        start, stop = self.uncounted
        state.counted_to = start if start < stop else None
        if self.priorities is not None:
            depths = self.priorities.depths
            state.positions, state.class_depths = [*self.priorities.at], [*depths.counts, depths.counted_to]
        self._pending.changes(state)
        self.touched = False
        return state

    def end_checkpoint(self, state: CursorState, *, failed: bool) -> None:
        """The result of the last `changes` is saved; or saving it `failed`, and the next checkpoint must contain it."""
        self._pending.end_checkpoint(state, failed=failed)
        if failed:
            self._touch()

    def restore(self, state: CursorState) -> list[HeldRow]:
        """
        Restore a saved state. Messages that were in flight are delivered first. Returns what is held. BackendError.
        """
        self.next, self.taken_total, self._replays = state.next, state.taken_total, state.replays
        self._uncounted = (0, 0) if state.counted_to is None else (state.counted_to, state.replays)
        if state.positions or self.priorities is not None:
            is_on = self.priorities is not None and self.priorities.is_on
            self.priorities = self._new_priorities()
            self.priorities.move([max(self.next, position) for position in state.positions or (self.next,) * 3])
            if state.class_depths:
                *counts, counted_to = state.class_depths
                self.priorities.depths.restore(counts, counted_to)
            self.priorities.switch(is_on=is_on)
        held = self._pending.restore(state)
        in_flight = sorted(state.first_deliveries)
        for sequence in in_flight:
            self._pending.put(sequence, 1, Place.REQUEUED)
        self._pending.interrupt(in_flight)
        self._redeliveries.restore(in_flight, self._reached)
        self._touch()
        return held

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

    def _new_priorities(self) -> PriorityReader:
        is_due, count_passed = self._is_due_for_replay, self._count_passed
        return PriorityReader(self._topic, self._channel, self.next, is_due, count_passed, lambda: self._replays)

    def _pass_over(self, segment: Segment, stop: int) -> None:
        """Pass messages for another channel."""
        self._count_passed(segment, self.next, stop)
        self.next = stop

    def _count_passed(self, segment: Segment, start: int, stop: int) -> None:
        """
        Count messages for another channel that were passed. Mostly they were counted before.
        """
        low, high = max(start, self._uncounted[0]), min(stop, self._uncounted[1])
        if low < high:
            self.taken_total = min(self.taken_total + high - low, self._topic.released_total)

    def _is_due_for_replay(self, segment: Segment, start: int, now: float) -> bool:
        """
        Return whether deferred messages are to be taken from the log, from the sequence `start` on. Those of a replay
        that are not due yet have pending rows from now on.
        """
        if start >= self._replays:
            return False
        wall_ns = segment.timestamp_ns + segment.delay_ms * 10**6
        due = (wall_ns - self._topic.context.wall_offset_ns) / 1e9
        if due > now:
            self.defer_released(start, segment.end - start, due)
            self._schedule(due)
        return due <= now

    def _count_dropped(self, count: int) -> None:
        """Messages that wait again, or are deferred, are dropped."""
        self.dropped_count += count
        self._redeliveries.limit_restored_count()
        self._touch()

    @property
    def _reached(self) -> int:
        """The mark up to which requeued messages are served. `next` may stand still while priorities are served."""
        return self.next if self.priorities is None else self.taken_total

    @property
    def _end(self) -> int:
        """The value of `_reached` when everything that is released was taken."""
        return self._topic.released if self.priorities is None else self._topic.released_total

    def _end_priorities(self) -> None:
        if self.priorities is not None:
            self.priorities.depths.close()
            self.priorities = None

    def _move_priorities(self) -> None:
        if self.priorities is not None:
            self.priorities.move([self.next] * 3)

    def _touch(self) -> None:
        self.touched = True
        self._topic.touch()


def _schedule_nothing(due: float) -> None:
    """Schedule nothing: the cursor is detached."""
