"""
Deadlines of connections, checked at intervals in parts.

There is one timer for all connections. A busy connection has no cost, in return for deadlines that are noticed up to a
round later. A connection without a deadline is not checked until it joins again. Many connections are checked in
several turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from twisted.logger import Logger

from nsqtw.runtime.reactor import Reactor

MAX_SECONDS = 2.5
_SHORTEST_SECONDS = 0.05
_CHECKS_PER_DEADLINE = 8
CHECKS_PER_TURN = 500
"""A look takes up to 8 us."""

_log = Logger()


class DeadlineOptions(Protocol):
    """The deadlines that connections are looked at for."""

    magic_timeout: float
    http_header_timeout: float
    http_idle_timeout: float
    body_timeout: float
    write_timeout: float


class Watched(Protocol):
    """An object with deadlines."""

    def check(self, now: float) -> bool:
        """End what takes too long. Whether to look again in the next round."""

    def abort(self) -> None:
        """End at once: something in here is broken."""


class DeadlineSweeper:
    """Checks its members periodically, in the clock `now`."""

    def __init__(self, reactor: Reactor, options: DeadlineOptions, now: Callable[[], float]) -> None:
        self._reactor = reactor
        self._now = now
        self._watched: dict[Watched, None] = {}
        self._is_armed = False
        self._options = options
        self.seconds = MAX_SECONDS
        self.follow_options()

    def follow_options(self) -> None:
        """The deadlines may be others: set how often to look."""
        options = self._options
        deadlines = (
            options.magic_timeout,
            options.http_header_timeout,
            options.http_idle_timeout,
            options.body_timeout,
            options.write_timeout,
        )
        shortest = min(filter(None, deadlines), default=MAX_SECONDS * _CHECKS_PER_DEADLINE)
        self.seconds = min(max(shortest / _CHECKS_PER_DEADLINE, _SHORTEST_SECONDS), MAX_SECONDS)

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
            self._reactor.callLater(self.seconds, self._begin)

    def _begin(self) -> None:
        self._go_on(iter(list(self._watched)))

    def _go_on(self, remaining: Iterator[Watched]) -> None:
        """Check some of the remaining members of this round."""
        now = self._now()
        count = 0
        for watched in islice(remaining, CHECKS_PER_TURN):
            count += 1
            if watched in self._watched and not self._check(watched, now):
                self.leave(watched)
        if count == CHECKS_PER_TURN:
            self._reactor.callLater(0, self._go_on, remaining)
        else:
            self._is_armed = False
            self._arm()

    def _check(self, watched: Watched, now: float) -> bool:
        try:
            return watched.check(now)
        except Exception:  # one connection fails, and not the others
            _log.failure("looking after a connection failed")
        try:
            watched.abort()
        except Exception:  # this round is over, and the next one begins
            _log.failure("ending a connection failed")
        return False
