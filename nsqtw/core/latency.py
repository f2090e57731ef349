"""
End-to-end latencies of a channel: the time of its messages from publish to finish.

Theory of operation. A channel keeps two sketches, each of half a window: one that is filled, and the one filled before.
At the end of its half the newer becomes the older one, and the older is dropped. So the percentiles cover between half
a window and a whole one, and nothing is kept of a single message.

The sketches come from a library (docs/decisions/0005-latencies-in-a-ddsketch.md), by way of `new_sketch`: a broker that
measures nothing does not import it. A sketch is made with its first value.

Performance: called once per run of FINs, when latencies are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from attrs import frozen

from nsqtw.core.histogram import Histogram


class Sketch(Protocol):
    """A distribution in little space, as `ddsketch.DDSketch` is one."""

    @property
    def count(self) -> float:
        """The number of values."""

    def add(self, val: float, weight: float, /) -> None:
        """Put in a value that occurred `weight` times."""

    def merge(self, sketch: Any, /) -> None:
        """Put in what another one knows."""

    def get_quantile_value(self, quantile: float, /) -> float | None:
        """The value at this part, 0 to 1, of the distribution; None when it is empty."""


@frozen
class Measure:
    """
    The measurement of a broker: `percentiles`, each above 0 and at most 1, in the order of the output, over the last
    `window` seconds.
    """

    percentiles: tuple[float, ...]
    window: float
    new_sketch: Callable[[], Sketch]

    def told(self, merged: Sketch) -> dict[str, Any]:
        """Return the /stats document of a sketch, in ns. Whole numbers have no fraction, as in nsqd."""
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
    """The latencies of one channel. They are also counted in `histogram`, the one of its topic."""

    __slots__ = ("_histogram", "_measure", "_newer", "_older", "_started_at")

    def __init__(self, measure: Measure, histogram: Histogram) -> None:
        self._measure = measure
        self._histogram = histogram
        self._started_at = -inf
        self._newer: Sketch | None = None
        self._older: Sketch | None = None

    def insert(self, latency_ns: int, count: int, now: float) -> None:
        """`count` messages that took so long are finished now."""
        self._forget(now)
        if self._newer is None:
            self._newer = self._measure.new_sketch()
        self._newer.add(latency_ns, count)
        self._histogram.observe(latency_ns / 1e9, count)

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
