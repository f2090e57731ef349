"""
The messages of one topic, from the scratch database to its log, and the cursors that go with them.

What the log and its cursors become, lowest sequences first:

    old, read by cursors | old, not released; half an import | handed to channels | old, not released | for all channels
    as it was            | dropped                           | see `order`        | written again     | released at load
                                                                                  ^ released

A topic that is new to this data path has only the third and the last part. In one that was used before, what it had
not released is written again behind what comes in, because channels read up to `released` and nothing beyond: so a
paused topic goes on holding back what it held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from attrs import define, field

from nsqtw.core.checkpoint import CursorState, PendingRow, TopicState, Waiting
from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.interfaces import IBackendQueue
from nsqtw.nsqd_import.bodies import Bodies
from nsqtw.nsqd_import.diskqueue import HEAD
from nsqtw.nsqd_import.log_copy import LogCopy
from nsqtw.nsqd_import.ordering import OTHER, Kind, Order, arrange, count
from nsqtw.nsqd_import.records import TOPIC, Message, Records

MAX_RETRIED = 1_000_000
"""A channel with more messages that were delivered before gets them as new ones: each would need a pending row."""
_READ_BYTES = 1 << 20


class Deliveries:
    """The channels that want a message, as numbers below `channels`."""

    def __init__(self, channels: int, retried: dict[int, int]) -> None:
        self._nobody_had_it = dict.fromkeys(range(channels), 0)
        self.forgiven = {queue for queue, messages in retried.items() if messages > MAX_RETRIED}
        """Channels whose attempts are not taken over."""

    def of(self, message: Message) -> dict[int, int] | None:
        """The attempts so far of each channel that wants it; None when no channel was given it yet."""
        counts = message.wanted
        if TOPIC in counts:
            if len(counts) == 1:
                return None
            # Only after a crash of nsqd. Its channel is not known then, so all channels get it.
            counts = {**self._nobody_had_it, **counts}
            del counts[TOPIC]
        if self.forgiven:
            counts = {channel: 0 if channel in self.forgiven else attempts for channel, attempts in counts.items()}
        return counts

    def kind(self, counts: dict[int, int]) -> Kind:
        """The kind of a message that is wanted so."""
        return tuple([channel for channel, attempts in counts.items() if not attempts]) or OTHER


class BacklogMessage(NamedTuple):
    """A message of before that the topic had not released."""

    timestamp_ns: int
    body: bytes
    delay_ms: int


@define
class _Handed:
    """The positions of messages that channels had been given: the first of each rank, their number, the rows."""

    firsts: dict[int, int] = field(factory=dict)
    count: int = 0
    rows: dict[int, list[PendingRow]] = field(factory=dict)


class Counts(NamedTuple):
    """
    The number of distinct messages that were imported: delivered to channels before, and of the topic's own queue.
    """

    handed: int
    own: int


class TopicImport:
    """
    Brings `records` into the log `queue`, and lets `state` say so. `log_end` is where the log ended before an
    import was begun: what it has beyond never reaches a channel.
    """

    def __init__(self, state: TopicState, queue: IBackendQueue, log_end: int, records: Records, bodies: Bodies) -> None:
        self._state = state
        self._queue = queue
        self._log_end = log_end
        self._records = records
        self._bodies = bodies
        self._unread = {
            number: max(0, state.released_total - cursor.taken_total) for number, cursor in enumerate(state.cursors)
        }
        self.deliveries = Deliveries(len(state.cursors), records.retried())

    def write(self, copy: LogCopy) -> Counts:
        """Do it; the state is then the caller's to save. BackendError, OSError, sqlite3.Error."""
        state, behind = self._state, self._queue.end
        order = arrange(count(kind for kind, _ in self._handed_out()), self._unread)
        unread_rows = {number: self._unread_rows(cursor) for number, cursor in self._moved(order)}
        handed = self._write_handed(copy, order)
        state.waiting.clear()
        first_of_backlog, backlog = _first_and_count(self._write_backlog(copy))
        first_own, own = _first_and_count(self._write_own(copy))
        state.end = copy.end_of_log()
        if behind > state.released:
            state.dropped.append((state.released, behind))
        state.released = next(first for first in (first_of_backlog, first_own, state.end) if first is not None)
        state.released_total += handed.count
        state.put_total = state.released_total + backlog + own
        for number, cursor in self._moved(order):
            whole = [first for rank, first in handed.firsts.items() if rank >= order.whole_from[number]]
            cursor.next = min(whole, default=state.released)
            cursor.taken_total = state.released_total - order.left(number)
            cursor.pending += unread_rows[number]
        for number, rows in handed.rows.items():
            state.cursors[number].pending += rows
        return Counts(handed.count, own)

    def _moved(self, order: Order) -> Iterator[tuple[int, CursorState]]:
        """The cursors that do not simply go on from where they are."""
        for number, cursor in enumerate(self._state.cursors):
            if order.whole_from[number] or not self._unread[number]:
                yield number, cursor

    def _handed_out(self) -> Iterator[tuple[Kind, Message]]:
        """The messages that were given to channels, with their kinds."""
        for message in self._records.messages():
            counts = self.deliveries.of(message)
            if counts is not None:
                yield self.deliveries.kind(counts), message

    def _in_order(self, order: Order) -> Iterator[tuple[int, Message]]:
        """Iterate over the same messages with their ranks, in the order of the log."""
        # Most messages are of one rank as a rule: these need no second sorting.
        largest = order.counts.index(max(order.counts))
        if sum(order.counts) > order.counts[largest]:
            ranked = ((order.rank(kind), message.key) for kind, message in self._handed_out())
            self._records.place((rank, key) for rank, key in ranked if rank != largest)
        for rank in range(len(order.counts)):
            if rank != largest:
                yield from ((rank, message) for message in self._records.placed(rank))
            elif order.counts[rank]:
                yield from ((rank, message) for kind, message in self._handed_out() if order.rank(kind) == rank)

    def _write_handed(self, copy: LogCopy, order: Order) -> _Handed:
        handed = _Handed(rows={number: [] for number in self._unread})
        for rank, message in self._in_order(order):
            sequence = self._copy(copy, message)
            handed.firsts.setdefault(rank, sequence)
            handed.count += 1
            for number, attempts in (self.deliveries.of(message) or {}).items():
                if attempts or rank < order.whole_from[number]:
                    handed.rows[number].append(PendingRow(sequence, attempts, 0))
        return handed

    def _copy(self, copy: LogCopy, message: Message) -> int:
        payload = self._bodies.payload(message)
        return copy.add(HEAD.unpack_from(payload)[0], payload[HEAD.size :])

    def _write_own(self, copy: LogCopy) -> Iterator[int]:
        """Write what no channel was given yet; the sequences."""
        messages = self._records.messages() if self._records.has_own else iter(())
        return (self._copy(copy, message) for message in messages if self.deliveries.of(message) is None)

    def _write_backlog(self, copy: LogCopy) -> Iterator[int]:
        """Write again what the topic had not released; the sequences."""
        for timestamp_ns, body, delay_ms in self._backlog():
            sequence = copy.add(timestamp_ns, body, delay_ms)
            if delay_ms:
                _extend(self._state.waiting, sequence, delay_ms)
            yield sequence

    def _backlog(self) -> Iterator[BacklogMessage]:
        for segment, start, stop in _parts(self._queue, self._state.released, self._log_end):
            for index in range(start, stop):
                frame = segment.slice(index, index + 1)
                yield BacklogMessage(_timestamp_ns(frame), frame[BODY_AT:], segment.delay_ms)

    def _unread_rows(self, cursor: CursorState) -> list[PendingRow]:
        """A row for each message that a cursor had still to read of what was there before."""
        dropped = self._state.dropped
        return [
            PendingRow(sequence, 0, 0)
            for segment, start, stop in _parts(self._queue, cursor.next, self._state.released)
            if not segment.delay_ms
            for sequence in range(segment.first + start, segment.first + stop)
            if not any(first <= sequence < end for first, end in dropped)
        ]


def _parts(queue: IBackendQueue, start: int, stop: int) -> Iterator[tuple[Segment, int, int]]:
    """
    Iterate over the messages of the log from `start` to `stop`: segments, each with the indexes that belong to them.
    """
    while start < stop and (segments := queue.read(start, _READ_BYTES)):
        for segment in segments:
            if segment.first < stop:
                yield segment, max(0, start - segment.first), min(segment.count, stop - segment.first)
        start = segments[-1].end


def _first_and_count(sequences: Iterable[int]) -> tuple[int | None, int]:
    """The first of ascending sequences, and how many there are."""
    iterator = iter(sequences)
    first = next(iterator, None)
    return first, sum(1 for _ in iterator) + (first is not None)


def _timestamp_ns(frame: bytes) -> int:
    return Segment(0, 1, 0, frame).timestamp_ns


def _extend(waiting: list[Waiting], sequence: int, delay_ms: int) -> None:
    last = waiting[-1] if waiting else None
    if last is not None and last.delay_ms == delay_ms and last.first + last.count == sequence:
        waiting[-1] = Waiting(last.first, last.count + 1, delay_ms)
    else:
        waiting.append(Waiting(sequence, 1, delay_ms))
