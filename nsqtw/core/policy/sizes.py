"""
Bytes of the messages between two positions in a log, without reading it.

Theory of operation. A *mark* is a sequence and the bytes of all messages before it, counted from an arbitrary start.
There is one for about every sixty-fourth of the bound, and one at each end of a gap of sequences. Between two marks
messages count as equally large. So the error of the bytes between two positions is at most a sixty-fourth of the bound,
or the size of a larger segment that contains one of them, and there is none where messages have one size.

A log that was there before the bound is sampled in steps (`Scan`). Each step reads one block: about MAX_SAMPLES of
them, evenly spaced. Messages between two blocks count as those of the first block do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from nsqtw.core.log import Log
from nsqtw.core.segment import Segment

_MARKS: Final = 64
MAX_SAMPLES: Final = 64
_BLOCK_BYTES: Final = 64 * 1024
_FORGOTTEN_AT_ONCE: Final = 32


class Sizes:
    """The marks of a log from `start` on, as far as `bound` bytes need them."""

    def __init__(self, start: int, bound: int) -> None:
        self._step = max(1, bound // _MARKS)
        self._sequences = [start]
        self._sizes = [0]
        self._count = self._size = 0  # of all messages that were sampled

    @property
    def start(self) -> int:
        """Nothing is known below."""
        return self._sequences[0]

    @property
    def end(self) -> int:
        """Nothing is known from here on."""
        return self._sequences[-1]

    @property
    def message_size(self) -> float:
        """The mean size of a message; 0 when none was sampled."""
        return self._size / self._count if self._count else 0.0

    def add(self, first: int, end: int, size: int) -> None:
        """Add messages of `size` bytes between these sequences, behind all others."""
        sequences, sizes = self._sequences, self._sizes
        total = sizes[-1]
        if first != sequences[-1]:
            sequences.append(first)
            sizes.append(total)
        elif len(sizes) > 1 and total + size - sizes[-2] <= self._step:
            del sequences[-1], sizes[-1]
        sequences.append(end)
        sizes.append(total + size)

    def sample(self, count: int, size: int) -> None:
        """Count messages of `size` bytes together for the mean."""
        self._count += count
        self._size += size

    def between(self, start: int, stop: int) -> int:
        """Return the bytes from the sequence `start` up to `stop`."""
        return max(0, self._before(stop) - self._before(start))

    def forget_below(self, sequence: int) -> None:
        """Forget marks below a sequence: nothing below it is asked for any more."""
        index = bisect_right(self._sequences, sequence) - 1
        if index >= _FORGOTTEN_AT_ONCE:
            del self._sequences[:index], self._sizes[:index]

    def _before(self, sequence: int) -> int:
        sequences, sizes = self._sequences, self._sizes
        index = bisect_right(sequences, sequence) - 1
        if index < 0:
            return sizes[0]
        if index == len(sequences) - 1:
            return sizes[-1]
        share = (sequence - sequences[index]) / (sequences[index + 1] - sequences[index])
        return sizes[index] + round(share * (sizes[index + 1] - sizes[index]))


class Scan:
    """
    The sizes of `log` from `start` to its end, in steps. `count` returns how many messages are between two
    sequences, `counts` whether a segment counts.
    """

    def __init__(
        self,
        log: Log,
        start: int,
        bound: int,
        count: Callable[[int, int], int],
        counts: Callable[[Segment], bool],
    ) -> None:
        self.sizes = Sizes(start, bound)
        self._log = log
        self._stride = -(-(log.end - start) // MAX_SAMPLES)
        self._count = count
        self._counts = counts

    @property
    def is_done(self) -> bool:
        """Whether `sizes` is complete."""
        return self.sizes.end >= self._log.end

    def step(self) -> None:
        """Read the next block. BackendError."""
        sizes, stop = self.sizes, self._log.end
        start = sizes.end
        count = counted = 0
        for segment in self._log.read(start, _BLOCK_BYTES):
            first = max(segment.first, start)
            if first < segment.end:
                of_these = segment.part(first - segment.first, segment.count).size
                of_counted = of_these if self._counts(segment) else 0
                sizes.add(first, segment.end, of_counted)
                sizes.sample(segment.end - first, of_these)
                count, counted = count + segment.end - first, counted + of_counted
        if not count:
            sizes.add(stop, stop, 0)
            return
        first, end = sizes.end, min(stop, start + self._stride)
        if first < end:
            sizes.add(first, end, counted * self._count(first, end) // count)
