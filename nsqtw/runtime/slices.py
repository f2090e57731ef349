"""
Work that takes longer than a turn may: done piece by piece, between which everybody else is served.

All such work together has SLICE_SECONDS of each turn, and takes turns itself: a small piece of work does not wait for
the end of a large one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from twisted.logger import Logger

SLICE_SECONDS = 0.01

_log = Logger()


class Slices:
    """The work of one edge, or of several. `now` is a clock in seconds."""

    def __init__(self, reactor: Any, now: Callable[[], float]) -> None:
        self._reactor = reactor
        self._now = now
        self._work: deque[Iterator[None]] = deque()

    def add(self, pieces: Iterator[None]) -> None:
        """Go through these in later turns; what each does is its own matter."""
        if not self._work:
            self._reactor.callLater(0, self._go_on)
        self._work.append(pieces)

    def _go_on(self) -> None:
        until = self._now() + SLICE_SECONDS
        while self._work:
            pieces = self._work.popleft()
            try:
                for _ in pieces:
                    self._work.append(pieces)
                    break
            except Exception:  # one work fails, and not the others
                _log.failure("what was done in pieces failed")
            if self._work and self._now() >= until:
                self._reactor.callLater(0, self._go_on)
                return
