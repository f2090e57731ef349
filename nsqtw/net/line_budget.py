"""Budget of log lines about one thing, so that a flood of it does not fill the log."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

LINES: int = 20
"""Lines in each period of SECONDS."""
SECONDS = 1.0

_log = Logger()


class LineBudget:
    """`now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self._count = 0

    def admit(self) -> bool:
        """Return whether one more line may be written. The first one of a period says how many were left out."""
        now = self._now()
        if now - self._since >= SECONDS:
            if self._count > LINES:
                _log.warn("{count} more requests were refused and left no line", count=self._count - LINES)
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= LINES
