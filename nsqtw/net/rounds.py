"""
A look at every connection, every now and then: whether it takes longer for something than it may.

One timer for all of them. A connection that is busy pays nothing for it, in return for deadlines that are noticed up to
a round later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.logger import Logger

LONGEST_SECONDS = 2.5
_SHORTEST_SECONDS = 0.05
_LOOKS_PER_DEADLINE = 8

_log = Logger()


class RoundsOptions(Protocol):
    """The deadlines that connections are looked at for."""

    magic_timeout: float
    http_header_timeout: float
    http_idle_timeout: float
    body_timeout: float
    write_timeout: float


class Watched(Protocol):
    """What is looked at."""

    def look(self, now: float) -> None:
        """End what takes too long."""

    def abort(self) -> None:
        """End at once: something in here is broken."""


class Rounds:
    """Looks at those who joined and did not leave, in the clock `now`."""

    def __init__(self, reactor: Any, options: RoundsOptions, now: Callable[[], float]) -> None:
        self._reactor = reactor
        self._now = now
        self._watched: dict[Watched, None] = {}
        self._is_armed = False
        deadlines = (
            options.magic_timeout,
            options.http_header_timeout,
            options.http_idle_timeout,
            options.body_timeout,
            options.write_timeout,
        )
        shortest = min(filter(None, deadlines), default=LONGEST_SECONDS * _LOOKS_PER_DEADLINE)
        self.seconds = min(max(shortest / _LOOKS_PER_DEADLINE, _SHORTEST_SECONDS), LONGEST_SECONDS)

    def join(self, watched: Watched) -> None:
        """Look at it from now on."""
        self._watched[watched] = None
        self._arm()

    def leave(self, watched: Watched) -> None:
        """It is gone."""
        self._watched.pop(watched, None)

    def _arm(self) -> None:
        if self._watched and not self._is_armed:
            self._is_armed = True
            self._reactor.callLater(self.seconds, self._go)

    def _go(self) -> None:
        self._is_armed = False
        now = self._now()
        for watched in list(self._watched):
            try:
                watched.look(now)
            except Exception:  # one connection fails, and not the others
                _log.failure("looking after a connection failed")
                watched.abort()
        self._arm()
