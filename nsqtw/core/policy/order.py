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

A span is not looked at message by message when its keys are all different and none has a head: two set operations find
that out. Else it is cut before the first message that must wait. The keys of what `advance` passed stay lists (`_runs`)
as long as the messages are finished in order, and are freed by one set operation. Any other order needs a table, into
which all runs are unfolded then. At most `window` messages are set aside; then the cursor stands still until keys
become free, and requeued heads are delivered without waiting for their turn.

Everything here is found again from what is in flight and from the pending rows (`_group`): after a start, a seek, and
when the policy is switched on. Where several messages of a key were delivered, because there was no policy then, those
in flight come first, and then the others of them. A deferred message that was due comes behind those that were set
aside.

Performance: called once per span and per run of FINs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from nsqtw.core.cursor import Cursor
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy.message_keys import Key, Keys, MessageKeys
from nsqtw.core.position import Redelivery
from nsqtw.core.segment import Segment, Span
from nsqtw.core.topic_log import TopicLog

_IN_FLIGHT, _DELIVERED, _NEW = range(3)
"""Unfinished messages of a key in the order in which they are delivered."""


class OrderedPosition:
    """
    The position of a channel of `topic` that delivers in the order of keys. `in_flight` returns the sequences that are
    in flight.
    """

    def __init__(
        self, topic: TopicLog, cursor: Cursor, keys: MessageKeys, in_flight: Callable[[], Iterable[int]]
    ) -> None:
        self.cursor = cursor
        self.window = 1
        self._topic = topic
        self._keys = keys
        self._in_flight = in_flight
        self._is_grouped = False
        self._busy: set[Key | None] = set()
        """The keys that have a head."""
        self._lines: dict[Key, deque[int]] = {}
        self._entered: dict[int, Key | None] = {}
        """The keys of what entered and is not finished: heads and lines, but for those in `_runs`."""
        self._runs: dict[int, Keys] = {}
        """Keys of heads with consecutive sequences, by the first sequence."""
        self._extras: set[int] = set()
        """Messages in lines that are not set aside: in flight from before there was an order, or in the cursor."""
        self._set_aside: set[int] = set()
        """What is here and not in the cursor, of the messages that are ready or wait for their key."""
        self._ready: deque[int] = deque()
        self._ready_again: deque[int] = deque()
        """Those set aside whose turn has come: never delivered, and delivered before."""
        self._segment: Segment | None = None
        self._segment_keys: Keys | None = None
        self._free_stop = 0  # the messages of the segment up to this index are known to be free, from `cursor.next` on
        self._is_mixed = False  # whether the segment is looked at message by message
        self._is_set_aside = False  # whether the last span was a message set aside

    # -- numbers

    @property
    def set_aside(self) -> Collection[int]:
        """The sequences of the messages that are here and not in the cursor, and are not in flight."""
        return self._set_aside

    @property
    def set_aside_count(self) -> int:
        """Messages that wait for an earlier one of their key."""
        return len(self._set_aside) - self._ready_count

    @property
    def waiting_key_count(self) -> int:
        """Keys that messages wait for."""
        return len(self._lines)

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
    def holds(self) -> bool:
        return self.cursor.holds

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

    def release(self, segments: list[Segment], now: float) -> float | None:
        return self.cursor.release(segments, now)

    def next_span(self, now: float) -> Span | None:
        while self._ready:
            record = self._topic.log.find(self._ready[0])
            if record is not None:
                self._is_set_aside = True
                segment, index = record
                return Span(segment, index, index + 1)
            self._lose(self._ready.popleft())
        self._is_set_aside = False
        while not self._is_full:
            span = self.cursor.next_span(now)
            if span is None:
                return None
            segment, start, stop = span
            stop = self._free_until(segment, start, stop)
            if start < stop:
                return Span(segment, start, stop)
            self._set_aside_next(segment.first + start)
        return None

    def advance(self, count: int) -> None:
        if self._is_set_aside:
            sequence = self._ready.popleft()
            self._set_aside.remove(sequence)
            self.cursor.finish(sequence)  # it has no row while it is on its first delivery
            return
        first = self.cursor.next
        self.cursor.advance(count)
        keys: Keys
        if self._segment is None or self._segment_keys is None:
            keys = (None,) * count
        else:
            start = first - self._segment.first
            keys = self._segment_keys[start : start + count]
            self._busy.update(keys)
        self._runs[first] = keys

    def pass_next(self, count: int) -> None:
        first = self._ready[0] if self._is_set_aside else self.cursor.next
        self.advance(count)
        self.end_run(first, count)

    def next_redelivery(self) -> Redelivery | None:
        if not self._is_grouped:
            self._group()
        while True:
            while not self._ready_again:
                ready_count = len(self._ready)
                if not self._take_requeued() or len(self._ready) > ready_count:
                    return None
            sequence = self._ready_again[0]
            record = self._topic.log.find(sequence)
            self._ready_again.popleft()
            if record is not None:
                self._set_aside.discard(sequence)
                return Redelivery(sequence, self.cursor.attempts(sequence), *record)
            self._lose(sequence)

    def redelivered(self, redelivery: Redelivery) -> None:
        self.cursor.redelivered(redelivery)

    # -- what becomes of messages

    def finish(self, sequence: int) -> None:
        self.cursor.finish(sequence)
        self.end(sequence)

    def end(self, sequence: int) -> None:
        """A message is finished: free its key."""
        if sequence not in self._entered:
            self._unfold()
        key = self._entered.pop(sequence, None)
        if sequence in self._extras:
            self._leave_line(sequence, key)
        else:
            self._free((key,))

    def end_run(self, first: int, count: int) -> None:
        """Consecutive messages are finished."""
        while count:
            if first in self._entered or (keys := self._runs.pop(first, None)) is None:
                self.end(first)
                ended = 1
            else:
                if len(keys) > count:
                    self._runs[first + count] = keys[count:]
                    keys = keys[:count]
                self._free(keys)
                ended = len(keys)
            first += ended
            count -= ended

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        self.cursor.requeue(message_id, delivery)

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        self.cursor.defer(message_id, delivery, due)

    def hold(self, sequence: int, attempts: int) -> None:
        self.cursor.hold(sequence, attempts)

    def cancel(self, sequence: int, now: float) -> bool:
        return self.cursor.cancel(sequence, now)

    def on_timer(self, now: float) -> float | None:
        return self.cursor.on_timer(now)

    def next_due(self, now: float) -> float | None:
        return self.cursor.next_due(now)

    def detach(self) -> None:
        self._in_flight = tuple
        self.cursor.detach()

    def empty(self) -> None:
        self._forget()
        self.cursor.empty()

    def dissolve(self) -> None:
        """Give everything that was set aside back to the cursor. What comes next is grouped anew."""
        self.cursor.take_back(sorted(self._set_aside))
        self._forget()

    # -- inside

    def _forget(self) -> None:
        for part in (self._busy, self._lines, self._entered, self._runs, self._extras, self._set_aside):
            part.clear()
        self._ready.clear()
        self._ready_again.clear()
        self._segment = self._segment_keys = None
        self._is_grouped = False

    def _free_until(self, segment: Segment, start: int, stop: int) -> int:
        """Return up to which index, at most `stop`, messages from `start` on may be delivered."""
        if segment is not self._segment:
            self._segment_keys = self._keys.of_segment(segment)
            self._segment, self._free_stop, self._is_mixed = segment, start, False
        keys = self._segment_keys
        if keys is None:
            return stop
        if self._free_stop <= start:
            self._free_stop = self._find_free(keys, start, stop)
        return min(stop, self._free_stop)

    def _find_free(self, keys: Keys, start: int, stop: int) -> int:
        """
        Return the end of the run of messages from `start` on that have different keys without a head. It stays right
        until a key gets a head in another way than by `advance`.
        """
        busy = self._busy
        if not self._is_mixed:
            run = keys[start:stop]
            if len(set(run)) == len(run) and busy.isdisjoint(run):
                return stop
            self._is_mixed = True
        met: set[Key | None] = set()
        for index in range(start, stop):
            key = keys[index]
            if key is not None and (key in busy or key in met):
                return index
            met.add(key)
        return stop

    def _set_aside_next(self, sequence: int) -> None:
        """The next message of the log has to wait for its key."""
        assert self._segment is not None and self._segment_keys is not None
        key = self._segment_keys[sequence - self._segment.first]
        assert key is not None
        self.cursor.advance(1)
        self.cursor.set_aside(sequence)
        self._wait(sequence, key)

    def _wait(self, sequence: int, key: Key) -> None:
        self._entered[sequence] = key
        self._set_aside.add(sequence)
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = deque((sequence,))
        else:
            line.append(sequence)

    def _free(self, keys: Keys) -> None:
        """The heads of these keys are finished."""
        waiting = self._lines.keys() & keys if self._lines else ()
        self._busy.difference_update(keys)
        for key in waiting:
            assert key is not None
            line = self._lines[key]
            head = line.popleft()
            if not line:
                del self._lines[key]
            self._busy.add(key)
            self._extras.discard(head)
            if head in self._set_aside:
                self._make_ready(head)

    def _leave_line(self, sequence: int, key: Key | None) -> None:
        assert key is not None
        self._extras.remove(sequence)
        self._lines[key].remove(sequence)
        if not self._lines[key]:
            del self._lines[key]

    def _unfold(self) -> None:
        for first, keys in self._runs.items():
            self._entered.update(enumerate(keys, first))
        self._runs.clear()

    def _make_ready(self, sequence: int) -> None:
        (self._ready_again if self.cursor.attempts(sequence) else self._ready).append(sequence)

    def _take_requeued(self) -> bool:
        """Take one that is requeued, or was deferred and is due, from the cursor. Returns whether. BackendError."""
        sequence = self.cursor.first_requeued(at_once=self._is_full)
        if sequence is None:
            return False
        if sequence not in self._entered:
            self._unfold()
        is_new = sequence not in self._entered
        key = self._key_at(sequence) if is_new else self._entered[sequence]
        self.cursor.take_requeued()
        if is_new and key is not None and key in self._busy:
            self._wait(sequence, key)
            return True
        self._set_aside.add(sequence)
        if sequence in self._extras:
            self._extras.remove(sequence)
            return True
        if is_new:
            self._entered[sequence] = key
            self._busy.add(key)
            self._free_stop = 0
        self._make_ready(sequence)
        return True

    def _key_at(self, sequence: int) -> Key | None:
        record = self._topic.log.find(sequence)
        return None if record is None else self._keys.of_message(*record)

    def _lose(self, sequence: int) -> None:
        """A message is not in the log any more."""
        self._topic.lost(sequence)
        self._set_aside.discard(sequence)
        self.finish(sequence)

    def _group(self) -> None:
        """Find out which messages are unfinished, and put them in the lines of their keys. BackendError."""
        ranks = dict.fromkeys(self._in_flight(), _IN_FLIGHT)
        for row in self.cursor.entered_rows():
            ranks.setdefault(row.sequence, _DELIVERED if row.attempts else _NEW)
        keys = {sequence: self._key_at(sequence) for sequence in sorted(ranks)}
        self._forget()
        for sequence in sorted(keys, key=lambda sequence: (ranks[sequence], sequence)):
            key = self._entered[sequence] = keys[sequence]
            if key is None:
                continue
            if key not in self._busy:
                self._busy.add(key)
                continue
            self._lines.setdefault(key, deque()).append(sequence)
            self._extras.add(sequence)
        self._is_grouped = True
