"""
In-flight table of a consumer: the ids of unanswered messages, each with its `Delivery`.

Theory of operation. Messages that are delivered together have consecutive ids, and most clients finish them in the
order of delivery. As long as a client keeps that order, they stay a *run*: a first id, a count and one Delivery. The
ids that should come next are encoded as one text (`next_ids`), the received FINs are compared with it as they are, and
then counted off (`finish_next`). No single message is looked at: 15 ns for each, where adding an entry to a table,
finding it by the id of a FIN and removing it takes 190.

A channel with an order delivers messages together whose ids are not consecutive: a run that has its ids in a list.

Any other order, and each REQ and TOUCH, needs that table: then all runs are unfolded into it, id -> Delivery, every
message at most once. Later deliveries are runs again, so everything in the table is older than all runs.

Performance: called once per span and per run of FINs.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from nsqtw.core.segment import SEQUENCE_MASK, Segment, consecutive_ids, joined_ids, sequence_of
from nsqtw.interfaces import Range

FIRST = -1
"""`Delivery.sequence` of a first delivery: the id tells it."""


class Delivery:
    """
    The deadline of messages in flight. `sequence` and `attempts` are set only for a redelivery, `timestamp_ns`, the
    time of publication, only where latencies are measured.
    """

    __slots__ = ("attempts", "deadline", "delivered_at", "segment", "sequence", "timestamp_ns")

    def __init__(
        self,
        deadline: float,
        delivered_at: float,
        timestamp_ns: int,
        sequence: int = FIRST,
        attempts: int = 1,
        segment: Segment | None = None,
    ) -> None:
        self.deadline = deadline
        self.delivered_at = delivered_at
        self.timestamp_ns = timestamp_ns
        self.sequence = sequence
        self.attempts = attempts
        self.segment = segment
        """The segment of the message, for channels that cannot find it in the log again."""


def delivered_sequence(message_id: bytes, delivery: Delivery) -> int:
    return sequence_of(message_id) if delivery.sequence == FIRST else delivery.sequence


class _Run:
    """
    `count` messages of one delivery. `number` is the id of the first one as a number, and the others follow it; if
    `ids` is not None, the ids and sequences of all are in `ids` and `sequences`, from the index `taken` on.
    """

    __slots__ = ("count", "delivery", "ids", "number", "sequences", "taken")

    def __init__(
        self,
        number: int,
        count: int,
        delivery: Delivery,
        ids: list[bytes] | None = None,
        sequences: Sequence[int] = (),
    ) -> None:
        self.number = number
        self.count = count
        self.delivery = delivery
        self.ids = ids
        self.sequences = sequences
        self.taken = 0

    def first_ids(self, count: int) -> list[bytes]:
        ids = self.ids
        return consecutive_ids(self.number, count) if ids is None else ids[self.taken : self.taken + count]

    def first_sequences(self, count: int) -> Sequence[int]:
        if self.ids is not None:
            return self.sequences[self.taken : self.taken + count]
        first = self.number & SEQUENCE_MASK
        return range(first, first + count)

    def has(self, number: int, at: int, count: int) -> bool:
        """Return whether `count` messages from the index `at` on have the ids from `number` on. Ids ascend."""
        ids = self.ids
        if ids is None:
            return self.number + at == number
        at += self.taken
        return int(ids[at], 16) == number and int(ids[at + count - 1], 16) == number + count - 1

    def joined(self, count: int, separator: bytes) -> bytes:
        """Return the first `count` ids as one text."""
        if self.ids is None:
            return joined_ids(self.number, count, separator)
        return separator.join(self.first_ids(count))


class InFlight:
    """The table of one consumer."""

    __slots__ = ("_runs", "_table", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of messages in flight."""
        self._runs: deque[_Run] = deque()
        self._table: dict[bytes, Delivery] = {}

    def __len__(self) -> int:
        return self.count

    def __contains__(self, message_id: bytes) -> bool:
        return self.get(message_id) is not None

    def get(self, message_id: bytes) -> Delivery | None:
        """Return the delivery of a message; None when it is not in flight here."""
        if message_id not in self._table:
            self._unfold()
        return self._table.get(message_id)

    def items(self) -> Iterator[tuple[bytes, Delivery]]:
        """Iterate over all messages in the order of delivery. The table must not change meanwhile."""
        yield from self._table.items()
        for run in self._runs:
            for message_id in run.first_ids(run.count):
                yield message_id, run.delivery

    def first_deliveries(self) -> list[int]:
        sequences = [
            sequence_of(message_id) for message_id, delivery in self._table.items() if delivery.sequence == FIRST
        ]
        for run in self._runs:
            if run.delivery.sequence == FIRST:
                sequences += run.first_sequences(run.count)
        return sequences

    def redeliveries(self, attempts: int) -> list[int]:
        """Return the sequences of redeliveries that are at least the delivery with this number."""
        deliveries = [*self._table.values(), *[run.delivery for run in self._runs]]
        return [one.sequence for one in deliveries if one.sequence != FIRST and one.attempts >= attempts]

    def count_below(self, sequence: int) -> int:
        """Return how many messages lie before a sequence."""
        count = sum(sequence_of(message_id) < sequence for message_id in self._table)
        for run in self._runs:
            count += bisect_left(run.first_sequences(run.count), sequence)
        return count

    @property
    def next_deadline(self) -> float | None:
        deadlines = [delivery.deadline for delivery in self._table.values()]
        deadlines += [run.delivery.deadline for run in self._runs]
        return min(deadlines, default=None)

    def add(self, number: int, count: int, delivery: Delivery) -> None:
        """`count` messages are handed out; `number` is the id of the first one as a number, and the others follow."""
        self.count += count
        if self._runs:
            last = self._runs[-1]
            if last.delivery is delivery and last.number + last.count == number and last.ids is None:
                last.count += count
                return
        self._runs.append(_Run(number, count, delivery))

    def add_gathered(self, ids: list[bytes], sequences: Sequence[int], delivery: Delivery) -> None:
        """Messages with these ascending ids and sequences are handed out."""
        self.count += len(ids)
        self._runs.append(_Run(int(ids[0], 16), len(ids), delivery, ids, sequences))

    def next_ids(self, limit: int, separator: bytes) -> bytes:
        """Return at most `limit` ids, those that come next if the client finishes in order."""
        if not self._runs:
            return b""
        first = self._runs[0]
        if limit <= first.count:
            return joined_ids(first.number, limit, separator) if first.ids is None else first.joined(limit, separator)
        parts = []
        for run in self._runs:
            count = min(run.count, limit)
            parts.append(run.joined(count, separator))
            limit -= count
            if not limit:
                break
        return separator.join(parts)

    def next_ranges(self, limit: int) -> list[Range]:
        """Return the messages of `next_ids` as ranges, up to the first run that has its ids in a list."""
        ranges: list[Range] = []
        for run in self._runs:
            if run.ids is not None:
                break
            if limit <= run.count:
                return [*ranges, (run.number, limit)]
            ranges.append((run.number, run.count))
            limit -= run.count
        return ranges

    def split_in_order(self, ranges: Sequence[Range]) -> tuple[int, Sequence[Range]]:
        """
        Return how many messages the first of these ranges have that are what `finish_next` would finish, and the other
        ranges.
        """
        if len(ranges) == 1 and self._runs:  # most often, and a part of the first run
            first, (number, count) = self._runs[0], ranges[0]
            if first.number == number and first.ids is None and 0 < count <= first.count:
                return count, ()
        total = left = 0
        for run, (number, count) in zip(self._runs, ranges, strict=False):  # most often, too: runs, and a part of one
            if left or run.number != number or run.ids is not None or not 0 < count <= run.count:
                break
            left = run.count - count
            total += count
        else:
            if len(ranges) <= len(self._runs):
                return total, ()
        total = at = 0
        runs = iter(self._runs)
        next_run = next(runs, None)
        for index, (number, count) in enumerate(ranges):
            left = max(count, 1)
            while left:
                if next_run is None or count <= 0:
                    return total, ranges[index:]
                part = min(next_run.count - at, left)
                if not next_run.has(number + count - left, at, part):
                    return total, ranges[index:]
                left -= part
                at += part
                if at == next_run.count:
                    next_run, at = next(runs, None), 0
            total += count
        return total, ()

    def next_runs(self, limit: int) -> Iterator[Sequence[int]]:
        """Return the sequences of the same messages, as they were delivered together."""
        for run in self._runs:
            count = min(run.count, limit)
            yield run.first_sequences(count)
            limit -= count
            if not limit:
                break

    def finish_next(self, count: int) -> list[tuple[Delivery, int]]:
        """So many of what `next_ids` told are finished: their deliveries, and how many messages of each."""
        self.count -= count
        finished = []
        while count:
            run = self._runs[0]
            part = min(run.count, count)
            finished.append((run.delivery, part))
            count -= part
            if part == run.count:
                self._runs.popleft()
            else:
                run.number += part
                run.count -= part
                if run.ids is not None:
                    run.taken += part
                    run.number = int(run.ids[run.taken], 16)
        return finished

    def take(self, ids: Sequence[bytes]) -> list[Delivery | None]:
        """Remove these messages. Returns the delivery of each; None for one that was not here."""
        taken = list(map(self._table.pop, ids, repeat(None)))
        if self._runs and None in taken:
            self._unfold()
            pop = self._table.pop
            taken = [delivery or pop(message_id, None) for message_id, delivery in zip(ids, taken, strict=True)]
        self.count -= len(taken) - taken.count(None)
        return taken

    def take_timed_out(self, now: float) -> list[tuple[bytes, Delivery]]:
        """Remove and return the messages whose timeout has passed."""
        deliveries = [
            (message_id, delivery) for message_id, delivery in self._table.items() if delivery.deadline <= now
        ]
        for run in self._runs:
            if run.delivery.deadline <= now:
                deliveries += zip(run.first_ids(run.count), repeat(run.delivery), strict=False)
        if deliveries:
            self.take([message_id for message_id, _ in deliveries])
        return deliveries

    def replace(self, message_id: bytes, delivery: Delivery) -> None:
        """Another delivery for one that `get` found."""
        self._table[message_id] = delivery

    def forget(self, start: int = 0) -> None:
        """Remove the messages from the sequence `start` on."""
        if start:
            self.take([message_id for message_id, _ in self.items() if sequence_of(message_id) >= start])
        else:
            self._runs.clear()
            self._table.clear()
            self.count = 0

    def _unfold(self) -> None:
        for run in self._runs:
            self._table.update(dict.fromkeys(run.first_ids(run.count), run.delivery))
        self._runs.clear()
