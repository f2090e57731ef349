"""
Lag of the reactor: how much later than it was due a timed call runs.

A call is due every SECONDS. A delay of it delays every client: a long computation, a blocking read, a machine that is
short of CPU. The worst lag of the last 15 to 30 seconds is kept, so a scrape every 15 seconds sees every stall, and a
second reader takes nothing from the first. A reactor that is stuck for good answers nobody; its last figure stays.
"""

from __future__ import annotations

from typing import Any

from nsqtw.runtime.reactor import TimeReactor

SECONDS = 0.5
WINDOW_SECONDS = 15.0


class ReactorLag:
    """Measures the lag of `reactor` between `start` and `stop`."""

    def __init__(self, reactor: TimeReactor) -> None:
        self._reactor = reactor
        self._call: Any = None
        self._due = 0.0
        self._window_end = 0.0
        self._newer = self._older = 0.0

    @property
    def worst(self) -> float:
        """The worst lag of the last window or two, in seconds."""
        return max(self._newer, self._older)

    def start(self) -> None:
        """Measure from now on."""
        self._window_end = self._reactor.seconds() + WINDOW_SECONDS
        self._schedule()

    def stop(self) -> None:
        """Measure no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _schedule(self) -> None:
        self._due = self._reactor.seconds() + SECONDS
        self._call = self._reactor.callLater(SECONDS, self._observe)

    def _observe(self) -> None:
        now = self._reactor.seconds()
        if now >= self._window_end:
            self._older, self._newer, self._window_end = self._newer, 0.0, now + WINDOW_SECONDS
        self._newer = max(self._newer, now - self._due)
        self._schedule()
