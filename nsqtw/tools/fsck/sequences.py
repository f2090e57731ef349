"""Sequences of a log: runs of consecutive ones, a few numbers for a million messages."""

from __future__ import annotations

from array import array
from bisect import bisect_left


class Sequences:
    """A set of sequences that is filled in ascending order."""

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._ends = array("Q")
        self._before = array("Q")
        """The number of sequences in the runs before."""

    def __len__(self) -> int:
        return self._before[-1] + self._ends[-1] - self._firsts[-1] if self._firsts else 0

    def add(self, first: int, end: int) -> None:
        """Add those from `first` up to `end`, which is not one of them."""
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
        else:
            self._before.append(len(self))
            self._firsts.append(first)
            self._ends.append(end)

    def count(self, low: int, high: int) -> int:
        """Return how many are at least `low` and below `high`."""
        return max(0, self._below(high) - self._below(low))

    def has(self, sequence: int) -> bool:
        return self.count(sequence, sequence + 1) == 1

    def runs(self) -> list[tuple[int, int]]:
        """The runs: the first sequence of each, and one past its last."""
        return list(zip(self._firsts, self._ends, strict=True))

    def _below(self, sequence: int) -> int:
        run = bisect_left(self._firsts, sequence) - 1
        return self._before[run] + min(sequence, self._ends[run]) - self._firsts[run] if run >= 0 else 0
