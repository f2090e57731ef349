"""
The reactor of a daemon: Twisted's epoll reactor, with less work for each event.

Theory of operation. Twisted's reactor sets a logging context around each event, which is not used here, and a call at
the end of a turn is a timed call like any other: created, sorted, checked and deleted. For a broker that answers single
messages the two cost 7 us of 49 us a message. So here an event is passed to its descriptor directly, and calls at the
end of a turn (`nsqtw.runtime.turns.end_of_turn`) wait in a list. Timed calls are checked once a turn, and only when one
can be due: Twisted's `runUntilCurrent` is called when there is a new call, one from a thread, one that is due, or the
reactor stops. The rest is Twisted's. Everything also works on Twisted's own reactors: tests use them, and `twistd
--reactor`.

To sleep and be woken takes longer than a small turn, also for the client (10 us each on a virtual machine). A client
that waits for each answer sends the next command shortly after it. So after a few waits that were all short the reactor
polls repeatedly, for SPIN_SECONDS, before it sleeps. When that was useless once, it sleeps at once again: a broker
without load, with little of it, or with a single core does not spin.

A turn is in `nsqtw.runtime.events`, which can be compiled.

Performance: called once per turn.
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
