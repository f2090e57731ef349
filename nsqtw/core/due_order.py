"""
Messages in the order of their due times, each with its sequence; those with the same time in the order of sequences.

Theory of operation. A run of consecutive sequences with one due time is one entry of a heap. There are two heaps: of
the messages that were due when `count_due` was last called, and of the others. So the next messages are taken, and
those that are due are counted, without a look at the rest, of which there may be a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from typing import Final

Key = tuple[float, float]
BEFORE_ALL: Final[Key] = (-1, -1)
BEHIND_ALL: Final[Key] = (inf, inf)
"""When a row is due, in ms of the pending clock, and its sequence."""

Run = tuple[int, int, int]
"""The due time of some messages, the sequence of the first one, and how many there are."""


class DueOrder:
    """An ordered collection of messages."""

    __slots__ = ("_counted_ms", "_due", "_due_count", "_later", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of messages."""
        self._counted_ms = -1
        self._due: list[Run] = []
        self._due_count = 0
        self._later: list[Run] = []
        """The runs that are due after `_counted_ms`."""

    def __iter__(self) -> Iterator[Run]:
        """Iterate over all runs, in any order."""
        return chain(self._due, self._later)

    def add(self, due_ms: int, first: int, count: int = 1) -> None:
        """Add messages with consecutive sequences."""
        self.count += count
        if due_ms > self._counted_ms:
            heappush(self._later, (due_ms, first, count))
        else:
            heappush(self._due, (due_ms, first, count))
            self._due_count += count

    def take(self, until: Key, limit: int) -> tuple[list[Run], Key]:
        """Remove the first messages, up to `until` and at most `limit`. Returns them, and how far that went."""
        taken: list[Run] = []
        for heap in (self._due, self._later):
            while heap and limit and heap[0][:2] <= until:
                due_ms, first, count = heappop(heap)
                part = min(count, limit, count if due_ms < until[0] else int(until[1]) + 1 - first)
                if part < count:
                    heappush(heap, (due_ms, first + part, count - part))
                taken.append((due_ms, first, part))
                limit -= part
                self.count -= part
                self._due_count -= part if heap is self._due else 0
        if not limit:
            due_ms, first, count = taken[-1]
            until = (due_ms, first + count - 1)
        return taken, until

    def remove(self, sequence: int, now_ms: int) -> bool:
        """
        Remove one message that is due after `now_ms`. Returns whether there was one. This looks at one run after the
        other.
        """
        for place, (due_ms, first, count) in enumerate(self._later):
            index = sequence - first
            if 0 <= index < count and due_ms > now_ms:
                self._later[place] = self._later[-1]
                self._later.pop()
                heapify(self._later)
                self.count -= count
                for start, rest in ((first, index), (sequence + 1, count - index - 1)):
                    if rest:
                        self.add(due_ms, start, rest)
                return True
        return False

    def replace(self, runs: list[Run]) -> None:
        """Have these messages instead."""
        self._due = [run for run in runs if run[0] <= self._counted_ms]
        self._later = [run for run in runs if run[0] > self._counted_ms]
        heapify(self._due)
        heapify(self._later)
        self._due_count = sum([count for _, _, count in self._due])
        self.count = sum([count for _, _, count in runs])

    def count_due(self, now_ms: int) -> int:
        """Return how many messages are due. The time never goes back."""
        later = self._later
        while later and later[0][0] <= now_ms:
            run = heappop(later)
            heappush(self._due, run)
            self._due_count += run[2]
        self._counted_ms = max(self._counted_ms, now_ms)
        return self._due_count


def below(runs: Iterable[Run], sequence: int) -> list[Run]:
    """Return the parts of runs that are below a sequence."""
    return [(due_ms, first, min(count, sequence - first)) for due_ms, first, count in runs if first < sequence]
