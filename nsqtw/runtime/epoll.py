"""
The reactor of a daemon: Twisted's, on epoll, with less between an event and whom it concerns.

Theory of operation. Twisted's reactor sets a logging context around each event, which nobody here reads, and what is to
be done when all that can be read was read is a timed call like any other: made, sorted, looked at and dropped. To a
broker that answers single messages the two cost 7 us of the 49 that a message took. So here an event goes straight to
its descriptor, and what is to be done at the end of a turn (`nsqtw.runtime.turns.end_of_turn`) waits in a list. Timed
calls are looked for once a turn, and only when one can be due: Twisted's `runUntilCurrent` is called when there is a
new call, one from a thread, one whose time has come, or the reactor stops. All else is Twisted's. On Twisted's own
reactors
everything works as well: tests use them, and `twistd --reactor`.

Going to sleep and being woken takes longer than a small turn, for the one who wakes as well (10 us each on a virtual
machine). A client that waits for each answer sends the next command a moment after it. So after a few waits that were
all short the reactor asks again and again, for SPIN_SECONDS, before it sleeps. Once that was in vain it sleeps at once
again: a broker that has nothing to do, or something now and then, does not ask, nor one with a single core.

A turn is in `nsqtw.runtime.events`, which can be compiled. This module is hot, once per turn.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor
from twisted.logger import Logger

from nsqtw.runtime.cpu_quota import cpu_quota
from nsqtw.runtime.events import FOR_EVER, Events

_MAX_SECONDS = 1000.0
"""epoll counts milliseconds in 32 bits."""

_log = Logger()


class TurnReactor(EPollReactor):
    """An epoll reactor whose turns have an end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events = Events(self, self._poller.poll, monotonic, may_spin=cpu_quota() > 1)
        self.at_end: Callable[[Callable[[], object]], None] = self._events.at_end
        """Call it once, when everything that can be read now has been read; from such a call: in the next turn."""

    def mainLoop(self) -> None:
        while self._started:
            try:
                while self._started:
                    self.doPoll(self._wait_until_due())
            except BaseException:
                _log.failure("a turn of the reactor failed")

    def _wait_until_due(self) -> float | None:
        """Do what is due; how long the poll after it may wait."""
        if self.running and not (self.threadCallQueue or self._newTimedCalls or self._justStopped):
            due = self._pendingTimedCalls
            if not due:
                return None
            delay = due[0].time - self.seconds()
            if delay > 0:
                return min(delay, _MAX_SECONDS)
        self.runUntilCurrent()
        return self.timeout() if self.running else 0.0

    def doPoll(self, timeout: float | None) -> None:
        self._events.turn(FOR_EVER if timeout is None else timeout)

    doIteration = doPoll


def install() -> None:
    """Make one the reactor of this process. ReactorAlreadyInstalledError if it has one."""
    installReactor(TurnReactor())  # type: ignore[no-untyped-call]
