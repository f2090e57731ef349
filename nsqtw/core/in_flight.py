"""
In-flight table of a consumer: the ids of messages without an answer, each with its `Delivery`.

Theory of operation. What is handed out together has consecutive ids, and most clients finish in the order in which they
got it. So it stays a *run*, a first id, how many there are and one Delivery, as long as the client keeps that order:
the ids that should come next are made as one text (`next_ids`), with which the FINs that came are compared as they are,
and then they are done (`finish_next`). Nobody looks at a single message: 15 ns for each, where an entry of a table that
is made, found by the id of a FIN and removed takes 190.

Any other order, and each REQ and TOUCH, needs that table: then all runs are unfolded into it, id -> Delivery, every
message at most once. What is handed out later are runs again. So all in the table is older than all in the runs.

This module is hot, once per span and per run of FINs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from nsqtw.core.segment import SEQUENCE_MASK, Segment, consecutive_ids, joined_ids, sequence_of

FIRST = -1
"""`Delivery.sequence` of a first delivery: the id tells it."""


class Delivery:
    """
    When messages in flight time out. `sequence` and `attempts` are filled in only for a redelivery, `timestamp_ns`,
    when they were published, only where latencies are measured.
    """

    __slots__ = ("attempts", "deadline", "delivered_at", "timestamp_ns", "segment", "sequence")

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
        """Where the message is, for channels that cannot find it in the log again."""


class _Run:
    """`count` messages of one delivery; `number` is the id of the first one as a number, and the others follow it."""

    __slots__ = ("count", "delivery", "number")

    def __init__(self, number: int, count: int, delivery: Delivery) -> None:
        self.number = number
        self.count = count
        self.delivery = delivery


class InFlight:
    """The table of one consumer."""

    __slots__ = ("_runs", "_table", "count")

    def __init__(self) -> None:
        self.count = 0
        """How many messages are in flight."""
        self._runs: deque[_Run] = deque()
        self._table: dict[bytes, Delivery] = {}

    def __len__(self) -> int:
        return self.count

    def __contains__(self, message_id: bytes) -> bool:
        return self.get(message_id) is not None

    def get(self, message_id: bytes) -> Delivery | None:
        """The delivery of a message; None when it is not in flight here."""
        if message_id not in self._table:
            self._unfold()
        return self._table.get(message_id)

    def items(self) -> Iterator[tuple[bytes, Delivery]]:
        """All of it as it was handed out. Nothing may change meanwhile."""
        yield from self._table.items()
        for run in self._runs:
            for message_id in consecutive_ids(run.number, run.count):
                yield message_id, run.delivery

    def first_deliveries(self) -> list[int]:
        """The sequences of those that nobody had before."""
        sequences = [
            sequence_of(message_id) for message_id, delivery in self._table.items() if delivery.sequence == FIRST
        ]
        for run in self._runs:
            if run.delivery.sequence == FIRST:
                first = run.number & SEQUENCE_MASK
                sequences += range(first, first + run.count)
        return sequences

    @property
    def next_deadline(self) -> float | None:
        """When the first of it times out."""
        deadlines = [delivery.deadline for delivery in self._table.values()]
        deadlines += [run.delivery.deadline for run in self._runs]
        return min(deadlines, default=None)

    def add(self, number: int, count: int, delivery: Delivery) -> None:
        """`count` messages are handed out; `number` is the id of the first one as a number, and the others follow."""
        self.count += count
        if self._runs:
            last = self._runs[-1]
            if last.delivery is delivery and last.number + last.count == number:
                last.count += count
                return
        self._runs.append(_Run(number, count, delivery))

    def next_ids(self, limit: int, separator: bytes) -> bytes:
        """The ids to come, at most so many, if the client finishes in order."""
        if not self._runs:
            return b""
        first = self._runs[0]
        if limit <= first.count:
            return joined_ids(first.number, limit, separator)
        parts = []
        for run in self._runs:
            count = min(run.count, limit)
            parts.append(joined_ids(run.number, count, separator))
            limit -= count
            if not limit:
                break
        return separator.join(parts)

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
        return finished

    def take(self, ids: Sequence[bytes]) -> list[Delivery | None]:
        """These are not in flight any more. The delivery of each; None for one that was not here."""
        taken = list(map(self._table.pop, ids, repeat(None)))
        if self._runs and None in taken:
            self._unfold()
            pop = self._table.pop
            taken = [delivery or pop(message_id, None) for message_id, delivery in zip(ids, taken, strict=True)]
        self.count -= len(taken) - taken.count(None)
        return taken

    def take_timed_out(self, now: float) -> list[tuple[bytes, Delivery]]:
        """What has timed out is not in flight any more."""
        deliveries = [
            (message_id, delivery) for message_id, delivery in self._table.items() if delivery.deadline <= now
        ]
        for run in self._runs:
            if run.delivery.deadline <= now:
                deliveries += zip(consecutive_ids(run.number, run.count), repeat(run.delivery), strict=False)
        if deliveries:
            self.take([message_id for message_id, _ in deliveries])
        return deliveries

    def replace(self, message_id: bytes, delivery: Delivery) -> None:
        """Another delivery for one that `get` found."""
        self._table[message_id] = delivery

    def forget(self, start: int = 0) -> None:
        """Nothing from the sequence `start` on is in flight any more."""
        if start:
            self.take([message_id for message_id, _ in self.items() if sequence_of(message_id) >= start])
        else:
            self._runs.clear()
            self._table.clear()
            self.count = 0

    def _unfold(self) -> None:
        for run in self._runs:
            self._table.update(dict.fromkeys(consecutive_ids(run.number, run.count), run.delivery))
        self._runs.clear()
