"""
Order by key: of the messages of a channel that have the same key at most one is in flight, in the order of the log.

Theory of operation. `OrderedPosition` stands between a channel and its cursor. A message *enters* when the cursor comes
to it, or, if it was deferred by its publisher, when it is due. The first of a key that entered and is not finished is
the *head* of its key. Only heads are delivered. A message that enters while its key has a head is *set aside*: it gets
a pending row with 0 attempts, so a checkpoint has it as unfinished, and waits in the line of its key. When the head
ends, the next one in the line becomes the head. A head that is requeued, deferred or times out stays the head: its key
waits for it.

    log     a1 b1 a2 c1 a3 b2 | next            heads   a: a1   b: b1   c: c1
            -- --    --       | not read yet    lines   a: a2 a3        b: b2

The messages of a segment are divided when the cursor comes to it: the first of each key that has no head is chosen, the
others have to wait. If none has, which two set operations find out, the segment is delivered as it is, else what is
chosen is copied together (`core.policy.gathered`). Nothing is changed before `advance`, and messages are chosen for
later turns, too. Until then a key may become free: then the message that was to wait is the head of its key when the
position passes it. A key that becomes busy in another way than by `advance` makes the choice void.

The keys of what `advance` passed stay lists (`_runs`) as long as the messages are finished in order, and are freed by
one set operation. Any other order needs a table, into which all runs are unfolded then. The next ones in the lines of
these keys are ready. They are sorted and gathered before the log is read on. At most `window` messages are set aside;
then the cursor stands still until keys become free, and requeued heads are delivered without waiting for their turn.
Deferred messages that are due stand before such heads, so they are set aside beyond the window, too. There may be a
hundred thousand of one key: a turn takes _MAX_TAKEN.

Everything here is found again from what is in flight and from the pending rows (`_group`): after a start, a seek, and
when the policy is switched on. That may take several turns, in which nothing is delivered. Where several messages of a
key were delivered, because there was no policy then, those in flight come first, and then the others of them: one that
is requeued is not delivered while another is in flight. A deferred message that was due comes behind those that were
set aside.

Performance: called once per span and per run of FINs, with steps for each message that is set aside.
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from itertools import islice
from typing import Final

from nsqtw.core.checkpoint import HeldRow
from nsqtw.core.cursor import Cursor
from nsqtw.core.in_flight import Delivery, delivered_sequence
from nsqtw.core.place import Place
from nsqtw.core.policy.choice import Choice, KeyedRun, LogChoice
from nsqtw.core.policy.gathered import gather_each
from nsqtw.core.policy.message_keys import Key, Keys, MessageKeys
from nsqtw.core.policy.unfinished import PAGE_COST, UnfinishedMessages
from nsqtw.core.position import Redelivery
from nsqtw.core.segment import Segment, Span
from nsqtw.core.topic_log import TopicLog

_MAX_GATHERED: Final = 1024
"""Ready messages that are sorted and gathered at once."""
_MAX_TAKEN: Final = 1024
"""
Messages that are requeued, or were deferred and are due, and are taken or grouped in one turn: 2 to 10 us for each.
"""
_MAX_SHORT: Final = 64
"""Messages in a line that is a list. A longer one is a deque, which takes half a kilobyte for the first message."""


class OrderedPosition:
    """
    The position of a channel of `topic` that delivers in the order of keys. `in_flight` returns the sequences that are
    in flight, `withheld` those that have pending rows and no place in the order.
    """

    def __init__(
        self,
        topic: TopicLog,
        cursor: Cursor,
        keys: MessageKeys,
        in_flight: Callable[[], Iterable[int]],
        withheld: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.cursor = cursor
        self.window = 1
        self._topic = topic
        self._keys = keys
        self._in_flight = in_flight
        self._withheld = withheld
        self.is_grouped = False
        """Whether all unfinished messages are known here. Before that nothing is delivered."""
        self._unfinished: UnfinishedMessages | None = None
        """Those that are still to be put in lines, while that goes on."""
        self._busy: set[Key | None] = set()
        """The keys that have a head."""
        self._lines: dict[Key | None, MutableSequence[int]] = {}
        self._entered: dict[int, Key | None] = {}
        """The keys of messages that entered and are not finished, but for those in `_runs` and those set aside."""
        self._runs: dict[int, KeyedRun] = {}
        """Heads that were delivered together, by the first sequence of those that are not finished."""
        self._not_set_aside: set[int] = set()
        """
        Messages in lines that have not entered: they are in flight since before there was an order, or the cursor still
        has them as requeued or deferred ones.
        """
        self._not_set_aside_in_flight: set[int] = set()
        """Those in flight; while messages are grouped, those to be grouped, too."""
        self._set_aside: dict[int, Key | None] = {}
        """Messages that are ready or wait for their key, and are not in the cursor."""
        self._ready: dict[int, Key | None] = {}
        self._ready_again: deque[int] = deque()
        """Those set aside whose turn has come: never delivered, and delivered before."""
        self._again: set[int] = set()
        """Those set aside that were delivered before."""
        self._from_ready: Choice | None = None
        self._from_log: LogChoice | None = None
        """The choices from the ready messages and from the log."""
        self._last: Choice | None = None
        """The choice of the last span."""
        self._segment: Segment | None = None
        self._segment_keys: Keys | None = None
        self._may_take = _MAX_TAKEN
        """How many messages may still be taken from the cursor in this turn to find one that is ready."""

    # -- numbers

    @property
    def set_aside(self) -> Collection[int]:
        """The sequences of the messages that are set aside, and of ready heads."""
        return self._set_aside.keys()

    @property
    def set_aside_count(self) -> int:
        """The number of the messages that are set aside, without ready heads."""
        return len(self._set_aside) - self._ready_count

    @property
    def waiting_key_count(self) -> int:
        return len(self._lines)

    def places(self) -> dict[Place, int]:
        return self.cursor.places() | {Place.SET_ASIDE: self.set_aside_count, Place.READY_HEAD: self._ready_count}

    @property
    def depth(self) -> int:
        return self.cursor.depth + len(self._set_aside)

    @property
    def available(self) -> int:
        cursor = self.cursor
        return self._ready_count + (cursor.redelivery_count if self._is_full else cursor.available)

    @property
    def backend_depth(self) -> int:
        return self.cursor.backend_depth

    @property
    def deferred_count(self) -> int:
        return self.cursor.deferred_count

    @property
    def dropped_count(self) -> int:
        return self.cursor.dropped_count

    @property
    def has_rows(self) -> bool:
        return self.cursor.has_rows

    @property
    def is_being_saved(self) -> bool:
        return not self._ready_count and self.cursor.is_waiting_for_save(reads_log=not self._is_full)

    @property
    def _ready_count(self) -> int:
        return len(self._ready) + len(self._ready_again)

    @property
    def _is_full(self) -> bool:
        return len(self._set_aside) >= self.window

    # -- delivery

    def begin_turn(self) -> None:
        """The next messages are delivered in another turn."""
        self._may_take = _MAX_TAKEN

    def release(self, segments: list[Segment], now: float) -> float | None:
        return self.cursor.release(segments, now)

    def next_span(self, now: float) -> Span | None:
        if not self.is_grouped:
            return None
        if self._ready:
            self._choose_ready()
        choice = self._last = self._from_ready or self._choose_from_log(now)
        return None if choice is None else choice.span

    def advance(self, count: int) -> None:
        self._take(count)

    def pass_next(self, count: int) -> None:
        self.end_run(self._take(count).sequences)

    def next_redelivery(self) -> Redelivery | None:
        if not self.is_grouped and not self._group():
            return None
        while True:
            while not self._ready_again:
                ready_count = len(self._ready)
                if self._may_take <= 0 or not self._take_requeued() or len(self._ready) > ready_count:
                    if self._ready:
                        self._choose_ready()  # here, where reads of the medium are counted
                    return None
            sequence = self._ready_again[0]
            record = self._topic.log.find(sequence)
            if record is None:
                self._lose(sequence)
                continue
            self._ready_again.popleft()
            self._again.remove(sequence)
            self._entered[sequence] = self._set_aside.pop(sequence)
            cursor = self.cursor
            return Redelivery(sequence, cursor.attempts(sequence), *record, cursor.is_interrupted(sequence))

    def redelivered(self, redelivery: Redelivery) -> None:
        self.cursor.redelivered(redelivery)

    # -- what becomes of messages

    def finish(self, sequence: int) -> None:
        self.cursor.finish(sequence)
        self.end(sequence)

    def end(self, sequence: int) -> None:
        """A message is finished: free its key."""
        self.end_each((sequence,))

    def end_each(self, sequences: Sequence[int]) -> None:
        """Messages are finished, in any order."""
        entered = self._entered
        if self._unfinished is not None:
            self._unfinished.end(sequences)
            self._not_set_aside_in_flight.difference_update(sequences)
        if self._runs and not entered.keys() >= set(sequences):
            self._unfold()
        keys: list[Key | None] = []
        for sequence in sequences:
            key = entered.pop(sequence, None)
            if sequence in self._not_set_aside:
                self._leave_line(sequence, key)
                self._not_set_aside.remove(sequence)
                self._not_set_aside_in_flight.discard(sequence)
            else:
                keys.append(key)
        self._free(keys)

    def end_run(self, sequences: Sequence[int]) -> None:
        """Messages are finished that were delivered one after another."""
        start, stop = 0, len(sequences)
        while start < stop:
            run = self._runs.get(sequences[start])
            count = 0 if run is None else min(run.count, stop - start)
            if run is None or run.sequence_at(count - 1) != sequences[start + count - 1]:
                self.end_each(sequences[start:])
                break
            del self._runs[sequences[start]]
            self._free(run.take(count).keys)
            if run.count:
                self._runs[run.sequence_at(0)] = run
            start += count

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        self._not_set_aside_in_flight.discard(delivered_sequence(message_id, delivery))
        self.cursor.requeue(message_id, delivery)

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        self._not_set_aside_in_flight.discard(delivered_sequence(message_id, delivery))
        self.cursor.defer(message_id, delivery, due)

    def take_out(self, sequence: int, attempts: int, place: Place, held: HeldRow | None = None) -> None:
        self._not_set_aside_in_flight.discard(sequence)
        self.cursor.take_out(sequence, attempts, place, held)

    def cancel(self, sequence: int, now: float) -> bool:
        return self.cursor.cancel(sequence, now)

    def on_timer(self, now: float) -> float | None:
        return self.cursor.on_timer(now)

    def next_due(self, now: float) -> float | None:
        return self.cursor.next_due(now)

    def detach(self) -> None:
        self._in_flight = self._withheld = tuple
        self.cursor.detach()

    def empty(self) -> None:
        self._forget()
        self.cursor.empty()

    def dissolve(self) -> None:
        """Give everything that was set aside back to the cursor. Later messages are grouped anew."""
        self.cursor.take_back(sorted(self._set_aside))
        self._forget()

    # -- dropping, for the bounds of a channel

    def requeued_sequences(self) -> list[int]:
        """Return the sequences of some messages that were set aside, or wait for another delivery, the first ones."""
        return [*islice(self._set_aside, _MAX_GATHERED), *self.cursor.requeued_sequences()]

    def drop_requeued(self, count: int) -> list[int]:
        """
        Drop up to `count` messages that were set aside, those first that were first, or else that wait for another
        delivery. Returns them. BackendError.
        """
        dropped = [*islice(self._set_aside, count)]
        if dropped:
            self.drop_these({*dropped})
        else:
            dropped = self.cursor.drop_requeued(count)
            self.end_each(dropped)
        return dropped

    def drop_deferred(self, count: int) -> list[int]:
        """Drop up to `count` deferred messages, those first that are due first. Returns them. BackendError."""
        dropped = self.cursor.drop_deferred(count)
        self.end_each(dropped)
        return dropped

    def drop_these(self, sequences: set[int]) -> None:
        """Drop messages that were set aside, or wait for another delivery."""
        self._from_ready = None
        here = sequences & self._set_aside.keys()
        for sequence in sorted(here):
            self._remove(sequence)
        self.end_each([*(sequences - here)])
        self.cursor.drop_these(sequences)

    # -- inside: the choice of what is delivered

    def _choose_ready(self) -> None:
        """Choose of the ready messages, unless there is a choice. BackendError."""
        ready = self._ready
        while ready and self._from_ready is None:
            sequences = sorted(islice(ready, _MAX_GATHERED))
            gathered, lost = gather_each(self._topic.log, sequences)
            for sequence in lost:
                self._lose(sequence)
            if gathered is not None:
                self._from_ready = Choice(*gathered, [ready[sequence] for sequence in gathered[2]])

    def _choose_from_log(self, now: float) -> Choice | None:
        """Return what may be delivered of the log. BackendError."""
        while (room := self.window - len(self._set_aside)) > 0:
            span = self.cursor.next_span(now)
            if span is None:
                return None
            choice = self._from_log
            if choice is None or not choice.is_of(span) or choice.waiting_count > room:
                choice = self._from_log = self._divide(span, room)
            if choice.count:
                return choice
            self._take_from_log(choice, 0)
        return None

    def _divide(self, span: Span, room: int) -> LogChoice:
        """Choose of a span the first message of each key that is not busy. At most `room` messages have to wait."""
        segment, start, stop = span
        if segment is not self._segment:
            self._segment, self._segment_keys = segment, self._keys.of_segment(segment)
        keys = self._segment_keys
        if keys is None:
            return LogChoice(span, stop, (None,) * segment.count)
        run, busy = keys[start:stop], self._busy
        if busy.isdisjoint(run) and len(set(run)) == len(run):
            return LogChoice(span, stop, keys)
        waiting: list[int] = []
        met: set[Key | None] = set()
        for index, key in enumerate(run, start):
            if key in busy or key in met:
                if key is not None:
                    waiting.append(index)
                    if len(waiting) == room:
                        stop = index + 1
                        break
            else:
                met.add(key)
        return LogChoice(span, stop, keys, waiting)

    def _take(self, count: int) -> KeyedRun:
        """Take the first `count` messages of the last span."""
        choice = self._last
        assert choice is not None
        run = self._take_from_log(choice, count) if isinstance(choice, LogChoice) else self._take_ready(choice, count)
        self._runs[run.sequence_at(0)] = run
        return run

    def _take_ready(self, choice: Choice, count: int) -> KeyedRun:
        run = choice.take(count)
        sequences = run.sequences
        for sequence in sequences:
            del self._ready[sequence], self._set_aside[sequence]
        self.cursor.take_set_aside(sequences)
        if not choice.count:
            self._from_ready = None
        return run

    def _take_from_log(self, choice: LogChoice, count: int) -> KeyedRun:
        passed, run, waiting = choice.take_from_log(count)
        self.cursor.advance(passed)
        self._busy.update(run.keys)
        self._busy.discard(None)
        if waiting.count:
            self._enter(waiting.sequences, waiting.keys)
        if not choice.count:
            self._from_log = None
        return run

    def _enter(self, sequences: Sequence[int], keys: Keys) -> None:
        """Set aside the next messages of the log, which have to wait unless their key has become free meanwhile."""
        self.cursor.set_aside(sequences)
        self._set_aside.update(zip(sequences, keys, strict=True))
        busy, lines = self._busy, self._lines
        for sequence, key in zip(sequences, keys, strict=True):
            if key in lines:
                self._wait(sequence, key)
            elif key in busy:
                lines[key] = [sequence]
            else:
                busy.add(key)
                self._make_ready(sequence, key)

    # -- inside: heads and lines

    def _forget(self) -> None:
        for sequences in (self._not_set_aside, self._not_set_aside_in_flight, self._again):
            sequences.clear()
        self._busy.clear()
        for part in (self._lines, self._entered, self._runs, self._set_aside, self._ready):
            part.clear()
        self._ready_again.clear()
        self._from_ready = self._from_log = self._last = None
        self._segment = self._segment_keys = None
        self.is_grouped = False
        self._unfinished = None

    def _wait(self, sequence: int, key: Key | None) -> None:
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = [sequence]
            return
        line.append(sequence)
        if len(line) == _MAX_SHORT:
            self._lines[key] = deque(line)

    def _leave_line(self, sequence: int, key: Key | None) -> None:
        line = self._lines[key]
        line.remove(sequence)
        if not line:
            del self._lines[key]

    def _free(self, keys: Keys) -> None:
        """The heads of these keys are finished."""
        self._busy.difference_update(keys)
        lines = self._lines
        if not lines:
            return
        freed = lines.keys() & keys
        self._busy.update(freed)
        for key in freed:
            line = lines[key]
            if self._not_set_aside or self._not_set_aside_in_flight:
                head = self._take_head(line)
            else:
                head = line[0]
                del line[0]
            if not line:
                del lines[key]
            if head in self._set_aside:
                self._make_ready(head, key)

    def _take_head(self, line: MutableSequence[int]) -> int:
        """Take the next head from a line: one that is in flight, from before there was an order, or the first one."""
        head = self._first_in_flight(line)
        if head is None:
            head = line[0]
            del line[0]
        else:
            line.remove(head)
            self._not_set_aside_in_flight.remove(head)
        self._not_set_aside.discard(head)
        return head

    def _first_in_flight(self, line: Iterable[int]) -> int | None:
        if not self._not_set_aside_in_flight:
            return None
        return next((sequence for sequence in line if sequence in self._not_set_aside_in_flight), None)

    def _make_ready(self, sequence: int, key: Key | None) -> None:
        self.cursor.move(sequence, Place.READY_HEAD)
        if sequence in self._again:
            self._ready_again.append(sequence)
        else:
            self._ready[sequence] = key

    def _remove(self, sequence: int) -> None:
        """A message that was set aside is not there any more."""
        key = self._set_aside.pop(sequence)
        self._again.discard(sequence)
        if sequence in self._ready:
            del self._ready[sequence]
            self._free((key,))
        elif sequence in self._ready_again:
            self._ready_again.remove(sequence)
            self._free((key,))
        else:
            self._leave_line(sequence, key)

    def _unfold(self) -> None:
        for run in self._runs.values():
            self._entered.update(zip(run.sequences, run.keys, strict=True))
        self._runs.clear()

    def _take_requeued(self) -> bool:
        """
        Take a message that is requeued, or was deferred and is due, from the cursor. Returns whether there was one.
        BackendError.
        """
        sequence = self.cursor.first_requeued(at_once=self._is_full)
        if sequence is None:
            return False
        if sequence not in self._entered:
            self._unfold()
        is_new = sequence not in self._entered
        key = self._key_at(sequence) if is_new else self._entered.pop(sequence)
        self.cursor.take_requeued()
        self.cursor.move(sequence, Place.SET_ASIDE)
        self._may_take -= 1
        self._set_aside[sequence] = key
        if self.cursor.attempts(sequence):
            self._again.add(sequence)
        if sequence in self._not_set_aside:
            self._not_set_aside.remove(sequence)
        elif is_new and key is not None and key in self._busy:
            self._wait(sequence, key)
        elif (line := self._lines.get(key)) and self._first_in_flight(line) is not None:
            self._take_head(line)
            line.insert(0, sequence)
        else:
            if is_new and key is not None:
                self._busy.add(key)
                self._from_log = None
            self._make_ready(sequence, key)
        return True

    def _key_at(self, sequence: int) -> Key | None:
        record = self._topic.log.find(sequence)
        return None if record is None else self._keys.of_message(*record)

    def _lose(self, sequence: int) -> None:
        """A message is not in the log any more."""
        self._topic.lost(sequence)
        self._remove(sequence)
        self.cursor.finish(sequence)

    def _group(self) -> bool:
        """
        Find out which messages are unfinished, and put them in the lines of their keys, as far as this turn has time
        for it. Returns whether all are there. BackendError, and it starts from the begin.
        """
        unfinished = self._unfinished
        if unfinished is None:
            self._forget()
            self._not_set_aside_in_flight.update(self._in_flight())
            pages = self.cursor.entered_rows()
            unfinished = UnfinishedMessages(self._not_set_aside_in_flight, pages, self._withheld())
        self._unfinished = None
        while self._may_take > 0:
            if not unfinished.is_collected:
                unfinished.collect()
                self._may_take -= PAGE_COST
                continue
            sequence = unfinished.take()
            if sequence is None:
                self.is_grouped = True
                return True
            self._enter_unfinished(sequence)
            self._may_take -= 1
        self._unfinished = unfinished
        return False

    def _enter_unfinished(self, sequence: int) -> None:
        """Put the next unfinished message in the line of its key; the first one is the head. BackendError."""
        key = self._entered[sequence] = self._key_at(sequence)
        if key is not None and key in self._busy:
            self._wait(sequence, key)
            self._not_set_aside.add(sequence)
            return
        self._not_set_aside_in_flight.discard(sequence)
        if key is not None:
            self._busy.add(key)
