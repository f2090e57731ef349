"""
Dense ranges of a topic's sequences, to count the messages between two positions without reading the log.

Theory of operation. Sequences have gaps where a block ended, a process ended, or a commit failed. The part between two
gaps is a *run*: in it, as many messages as sequences. A list of the runs, each with the number of messages before it,
answers how many messages are between any two sequences, and which of a hole in the log were there once.

`before` knows nothing of sequences under the first run: that is what an older nsqtw wrote and did not count.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class SequenceRanges:
    """The runs up to `end`, from what `state` gave, or from nothing."""

    def __init__(self, end: int, state: Iterable[tuple[int, int]] = ()) -> None:
        *runs, (self.end, self._count) = [*state] or [(end, 0)]
        self._firsts = [first for first, _ in runs]
        self._counts = [count for _, count in runs]

    def add(self, first: int, count: int) -> None:
        """Messages were appended."""
        if first != self.end or not self._firsts:
            self._firsts.append(first)
            self._counts.append(self._count)
        self._count += count
        self.end = first + count

    def before(self, sequence: int) -> int | None:
        """Return how many messages were put before this sequence, as a number to subtract from another one."""
        if sequence >= self.end:
            return self._count
        index = bisect_right(self._firsts, sequence) - 1
        if index < 0:
            return None
        return self._counts[index] + min(sequence - self._firsts[index], self._length(index))

    def gap_start(self, sequence: int) -> int:
        """Return the lowest sequence from which no message was put before this one."""
        index = bisect_left(self._firsts, sequence) - 1
        return sequence if index < 0 else min(sequence, self._firsts[index] + self._length(index))

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of `start` to `stop` in which each sequence had a message, as (first, one past the last)."""
        for index in range(max(0, bisect_right(self._firsts, start) - 1), len(self._firsts)):
            first = self._firsts[index]
            if first >= stop:
                return
            low, high = max(first, start), min(first + self._length(index), stop)
            if low < high:
                yield low, high

    def forget_below(self, sequence: int) -> bool:
        """Nobody will ask for anything under this sequence. Returns whether that changes what is to be saved."""
        passed = bisect_right(self._firsts, sequence) - 1
        if passed <= 0:
            return False
        del self._firsts[:passed], self._counts[:passed]
        return True

    def truncate(self, end: int) -> None:
        """The log ends at `end`, which is earlier than was saved."""
        if end >= self.end:
            return
        self._count = self.before(end) or 0
        self.end = end
        while self._firsts and self._firsts[-1] >= end:
            del self._firsts[-1], self._counts[-1]

    def state(self) -> list[tuple[int, int]]:
        """Return the state of the runs: each with its first sequence and the count before it, and then the end."""
        return [*zip(self._firsts, self._counts, strict=True), (self.end, self._count)]

    def _length(self, index: int) -> int:
        after = self._counts[index + 1] if index + 1 < len(self._counts) else self._count
        return after - self._counts[index]
