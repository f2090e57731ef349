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
    """A connection that has output at the end of a turn."""

    def flush(self, now: float) -> None:
        """Write what there is."""

    def abort(self) -> None:
        """End at once: something in here is broken."""


class Turns(Protocol):
    """The end of a turn: the pump of a broker, or PlainTurns."""

    def now(self) -> float:
        """The time in seconds, from an arbitrary start."""

    def changed(self, connection: Connection) -> None:
        """It has something to write, and is asked for it at the end of the turn."""

    @property
    def reactor(self) -> Any:
        """The reactor of the server."""


def end_of_turn(reactor: Reactor) -> Callable[[Callable[[], object]], object]:
    """
    Return a function that calls its argument once, after all reads of this turn. Calls scheduled by such a call run in
    the next turn.
    """
    at_end: Callable[[Callable[[], object]], object] = getattr(reactor, "at_end", None) or partial(reactor.callLater, 0)
    return at_end


def end_failed(connection: Connection) -> None:
    """End a connection that failed. An exception in that does not affect the others."""
    try:
        connection.abort()
    except Exception:
        _log.failure("ending a connection failed")


class PlainTurns:
    """The turns of a daemon that only writes at their end."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._at_end = end_of_turn(reactor)
        self._changed: dict[Connection, None] = {}
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> float:
        """Turns API"""
        return time.monotonic()

    def unix_ns(self) -> int:
        """Return Unix time in nanoseconds, counted from the start: changes of the wall clock do not affect it."""
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
