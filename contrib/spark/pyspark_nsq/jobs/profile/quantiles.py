"""Counts of durations in buckets, from which percentiles are read with an error of 1 % at most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = (50, 90, 99)

_GROWTH = 1.02
_LOG_GROWTH = math.log(_GROWTH)
#: In seconds; everything below is counted as this.
_SHORTEST = 1e-6


@dataclass
class Durations:
    """Durations in seconds. Bucket `n` has those up to ``1.02 ** n``, and above the bucket before."""

    buckets: Counter[int] = field(default_factory=Counter)
    longest: float = 0.0

    @property
    def count(self) -> int:
        return self.buckets.total()

    def add(self, seconds: Iterable[float]) -> None:
        for each in seconds:
            self.buckets[math.ceil(math.log(max(each, _SHORTEST)) / _LOG_GROWTH)] += 1
            self.longest = max(self.longest, each)

    def merge(self, other: Durations) -> None:
        self.buckets.update(other.buckets)
        self.longest = max(self.longest, other.longest)

    def percentiles(self) -> dict[str, float]:
        """Return the `PERCENTILES` and the maximum; nothing when there are no durations."""
        if not self.buckets:
            return {}
        found = percentiles({duration_of(bucket): count for bucket, count in self.buckets.items()})
        return {**{name: round(min(value, self.longest), 6) for name, value in found.items()}, "max": self.longest}


def duration_of(bucket: int) -> float:
    """Return the duration of a bucket that differs by at most 1 % from all others in it."""
    return float(2 * _GROWTH**bucket / (_GROWTH + 1))


def percentiles(counts: Mapping[Any, int]) -> dict[str, Any]:
    """Return the `PERCENTILES` of values with their counts, by nearest rank."""
    ordered = sorted(counts)
    total = sum(counts.values())
    found: dict[str, Any] = {}
    upto, at = 0, -1
    for percent in PERCENTILES:
        while upto < max(1, math.ceil(total * percent / 100)):
            at += 1
            upto += counts[ordered[at]]
        found[f"p{percent}"] = ordered[at]
    return found
