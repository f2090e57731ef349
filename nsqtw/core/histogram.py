"""
Histograms of durations in fixed buckets.

A histogram counts values by bucket from the start of the process; only a difference of two readings means something.
It is updated once for a turn, a commit or a run of messages, with the number of messages or publishes that
took so long.

Performance: called once per commit.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_left

COMMIT_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds for what a commit takes, in seconds: from the write of one message to a medium that hangs."""
LATENCY_BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
"""Upper bounds for the time from publish to finish, in seconds: consumers may take hours."""


class Histogram:
    """Counts of values, by the first of the ascending `bounds` that is not below a value, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One for each bound, and the last one for what is above all of them."""
        self.sum = 0.0

    def observe(self, value: float, count: int) -> None:
        """Count a value that occurred `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def cumulative(self) -> list[int]:
        """Return how many values are not above each bound, and at the end how many there are."""
        total = 0
        totals = []
        for count in self.counts:
            total += count
            totals.append(total)
        return totals
