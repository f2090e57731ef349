"""
Ranges of sequences that were dropped from a topic before their release, by emptying it: no channel gets them.

The messages stay in the log, so its readers, cursors and the readers of a topic, skip the ranges.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Iterable, Iterator


class DroppedRanges:
    """Ranges (first, one past the last), ascending and apart."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges = list(ranges)

    def add(self, start: int, stop: int) -> None:
        """One above all that are there."""
        self._ranges.append((start, stop))

    def at_or_above(self, sequence: int, end: int) -> tuple[int, int]:
        """The range that contains `sequence` or comes next; an empty one at `end` when there is none."""
        for start, stop in self._ranges:
            if sequence < stop:
                return start, stop
        return end, end

    def between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges between two sequences, as far as they lie there."""
        for first, end in self._ranges:
            if start < end and first < stop:
                yield max(first, start), min(end, stop)

    def forget_below(self, sequence: int) -> None:
        """Nothing below is read any more."""
        self._ranges = [(start, stop) for start, stop in self._ranges if stop > sequence]

    def state(self) -> list[tuple[int, int]]:
        """All ranges, for the checkpoint."""
        return list(self._ranges)
