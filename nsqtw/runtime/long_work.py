"""
Long computations in the reactor thread, split into steps by Twisted's Cooperator.

All of them together get a slice of a turn, SLICE_SECONDS unless the server says otherwise, and advance in rotation, so
a short one does not wait for a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.task import Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.runtime.reactor import Reactor

SLICE_SECONDS = 0.01

_log = Logger()


class LongWork:
    """The long computations of one server. `now` is a clock in seconds."""

    def __init__(self, reactor: Reactor, now: Callable[[], float], slice_seconds: float | None = None) -> None:
        def begin_slice() -> Callable[[], bool]:
            until = now() + (SLICE_SECONDS if slice_seconds is None else slice_seconds)
            return lambda: now() >= until

        self._cooperator = Cooperator(begin_slice, lambda tick: reactor.callLater(0, tick))

    def add(self, steps: Iterator[None]) -> None:
        """Run `steps` in later turns. A step that raises ends its computation only, and is logged."""
        self._cooperator.coiterate(steps).addErrback(_log_failure)


def _log_failure(failure: Failure) -> None:
    _log.failure("a long computation failed", failure)
