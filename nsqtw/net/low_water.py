"""
Connections that are read when a number of bytes have arrived, or after a short time (SO_RCVLOWAT).

The kernel is told how many bytes wake the process (SO_RCVLOWAT, the low-water mark of the receive buffer), so waiting
for them costs nothing. The kernel has no time limit for it: here every waiting connection is checked periodically, and
one from which nothing was read since the last check is woken by whatever has arrived.
"""

from __future__ import annotations

from typing import Protocol

from twisted.logger import Logger

from nsqtw.protocols.fin_coalescing import FLUSH_SECONDS
from nsqtw.runtime.reactor import Reactor

_log = Logger()


class Waiting(Protocol):
    """A connection with a low-water mark."""

    def wait_on(self) -> bool:
        """The time is over: lower the mark if nothing was read. Returns whether to check again."""


class LowWater:
    """Checks its members periodically."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: dict[Waiting, None] = {}
        self._is_armed = False

    def join(self, waiting: Waiting) -> None:
        """It has a mark from now on."""
        self._waiting[waiting] = None
        self._arm()

    def leave(self, waiting: Waiting) -> None:
        """It is gone."""
        self._waiting.pop(waiting, None)

    def _arm(self) -> None:
        if self._waiting and not self._is_armed:
            self._is_armed = True
            self._reactor.callLater(FLUSH_SECONDS, self._check)

    def _check(self) -> None:
        self._is_armed = False
        for waiting in list(self._waiting):
            try:
                if waiting.wait_on():
                    continue
            except Exception:  # one connection fails, and not the others
                _log.failure("waiting for more of a connection failed")
            self.leave(waiting)
        self._arm()
