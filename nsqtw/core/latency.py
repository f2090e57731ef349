"""
End-to-end latencies of a channel: how long its messages took from being published to being finished.

Theory of operation. A channel keeps two sketches, each of half a window: one that is filled, and the one that was
filled before it. When its half is over, the fuller becomes the older one, and what the older knew is forgotten. So an
answer covers between half a window and a whole one, and nothing has to be kept of a single message (nsqd
specification 6.2).

A sketch is a library's (docs/decisions/0005-latencies-in-a-ddsketch.md). It comes from outside, as `new_sketch`: who
measures nothing does not load it. One is made when there is something to put into it.

This module is hot when latencies are measured, once per run of FINs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from attrs import frozen


class Sketch(Protocol):
    """A distribution in little space, as `ddsketch.DDSketch` is one."""

    @property
    def count(self) -> float:
        """How many values were put in."""

    def add(self, val: float, weight: float, /) -> None:
        """Put in a value that occurred `weight` times."""

    def merge(self, sketch: Any, /) -> None:
        """Put in what another one knows."""

    def get_quantile_value(self, quantile: float, /) -> float | None:
        """The value at this part, 0 to 1, of the distribution; None when it is empty."""


@frozen
class Measure:
    """
    What a broker measures: `percentiles`, each above 0 and at most 1, in the order they are told in, over the last
    `window` seconds.
    """

    percentiles: tuple[float, ...]
    window: float
    new_sketch: Callable[[], Sketch]

    def told(self, merged: Sketch) -> dict[str, Any]:
        """What /stats says of a sketch, in ns. Numbers without a fraction are whole ones, as in nsqd."""
        return {
            "count": round(merged.count),
            "percentiles": [
                {
                    "quantile": int(quantile) if quantile.is_integer() else quantile,
                    "value": round(merged.get_quantile_value(quantile) or 0),
                }
                for quantile in self.percentiles
            ],
        }


class Latencies:
    """The latencies of one channel."""

    __slots__ = ("_started_at", "_measure", "_newer", "_older")

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._started_at = -inf
        self._newer: Sketch | None = None
        self._older: Sketch | None = None

    def insert(self, latency_ns: int, count: int, now: float) -> None:
        """`count` messages that took so long are finished now."""
        self._forget(now)
        if self._newer is None:
            self._newer = self._measure.new_sketch()
        self._newer.add(latency_ns, count)

    def merge_into(self, merged: Sketch, now: float) -> None:
        """Put what is known of the last window into another sketch."""
        self._forget(now)
        for sketch in (self._newer, self._older):
            if sketch is not None:
                merged.merge(sketch)

    def _forget(self, now: float) -> None:
        half_window = self._measure.window / 2
        age = now - self._started_at
        if age <= half_window:
            return
        if age <= 2 * half_window:
            self._older, self._started_at = self._newer, self._started_at + half_window
        else:
            self._older, self._started_at = None, now
        self._newer = None
