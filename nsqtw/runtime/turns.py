"""The turns of a reactor, as the edges see them: what time it is, and a last word before the next poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.logger import Logger

from nsqtw.runtime.reactor import Reactor

_log = Logger()


class Connection(Protocol):
    """What has something to write at the end of a turn."""

    def flush(self, now: float) -> None:
        """Write what there is."""

    def abort(self) -> None:
        """End at once: something in here is broken."""


class Turns(Protocol):
    """What drives the edges: a broker's pump, or PlainTurns."""

    def now(self) -> float:
        """The moment, in seconds; only differences mean something."""

    def changed(self, connection: Connection) -> None:
        """It has something to write, and is asked for it at the end of the turn."""

    @property
    def reactor(self) -> Any:
        """What runs all of it."""


def end_of_turn(reactor: Reactor) -> Callable[[Callable[[], object]], object]:
    """
    How to have something called once, when everything that can be read now has been read. What such a call asks for is
    done in the next turn.
    """
    at_end: Callable[[Callable[[], object]], object] = getattr(reactor, "at_end", None) or partial(reactor.callLater, 0)
    return at_end


def end_failed(connection: Connection) -> None:
    """End one that failed; whatever breaks in that, the others are written to."""
    try:
        connection.abort()
    except Exception:
        _log.failure("ending a connection failed")


class PlainTurns:
    """Those of a daemon that has nothing to do at the end of a turn but to write."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._at_end = end_of_turn(reactor)
        self._changed: dict[Connection, None] = {}
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> float:
        """Turns API"""
        return time.monotonic()

    def unix_ns(self) -> int:
        """Unix time in nanoseconds, as it was at the start and goes on from there: who sets the clock moves nothing."""
        return self._base_ns + time.monotonic_ns()

    def changed(self, connection: Connection) -> None:
        """Turns API"""
        if not self._changed:
            self._at_end(self._end)
        self._changed[connection] = None

    @property
    def reactor(self) -> Any:
        """Turns API"""
        return self._reactor

    def _end(self) -> None:
        changed, self._changed = self._changed, {}
        now = self.now()
        for connection in changed:
            try:
                connection.flush(now)
            except Exception:  # one connection fails, and not the others
                _log.failure("writing to a connection failed")
                end_failed(connection)
