"""
The reactor of a daemon: Twisted's, on epoll, with less between an event and whom it concerns.

Theory of operation. Twisted's reactor sets a logging context around each event, which nobody here reads, and what is to
be done when all that can be read was read is a timed call like any other: made, sorted, looked at and dropped. To a
broker that answers single messages the two cost 7 us of the 49 that a message took. So here an event goes straight to
its descriptor, and what is to be done at the end of a turn (`nsqtw.net.turns.end_of_turn`) waits in a list. Timed calls
are looked for once a turn, and only when one can be due: Twisted's `runUntilCurrent` is called when there is a new
call, one from a thread, one whose time has come, or the reactor stops. All else is Twisted's. On Twisted's own reactors
everything works as well: tests use them, and `twistd --reactor`.

Going to sleep and being woken takes longer than a small turn, for the one who wakes as well (10 us each on a virtual
machine). A client that waits for each answer sends the next command a moment after it. So after a few waits that were
all short the reactor asks again and again, for SPIN_SECONDS, before it sleeps. Once that was in vain it sleeps at once
again: a broker that has nothing to do, or something now and then, does not ask, nor one with a single core.

This module is hot, once per event and turn.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from select import EPOLLIN
from time import monotonic
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor
from twisted.logger import Logger

from nsqtw.net.cores import cores

SPIN_SECONDS = 30e-6
SHORT_SECONDS = 60e-6
"""Of a wait in which both sides slept and were woken; without that it is half as long."""
SHORT_WAITS = 4
"""So many in a row, and the next one is expected to be short, too. Of a consumer's FIN and the next message, which
come in turn, one takes long."""
_LONGEST_SECONDS = 1000.0
"""epoll counts milliseconds in 32 bits."""

_log = Logger()


class TurnReactor(EPollReactor):
    """An epoll reactor whose turns have an end."""

    _selectables: dict[int, Any]

    def __init__(self) -> None:
        self._ends: list[Callable[[], object]] = []
        self._short_waits = 0
        """How many waits in a row were short."""
        self._may_spin = cores() > 1
        super().__init__()  # type: ignore[no-untyped-call]

    def at_end(self, call: Callable[[], object]) -> None:
        """Call it once, when everything that can be read now has been read; from such a call: in the next turn."""
        self._ends.append(call)

    def timeout(self) -> float | None:
        return 0.0 if self._ends else super().timeout()

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
                return 0.0 if self._ends else None
            delay = due[0].time - self.seconds()
            if delay > 0:
                return 0.0 if self._ends else min(delay, _LONGEST_SECONDS)
        self.runUntilCurrent()
        return self.timeout() if self.running else 0.0

    def doPoll(self, timeout: float | None) -> None:
        try:
            events = self._poll_now() if timeout == 0 else self._wait(timeout)
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
        self._handle(events)
        if self._ends:
            if len(events) > 1:  # of many who wait for answers more have come by now, and a turn costs less for more
                self._handle(self._poll_now())
            self._end()

    doIteration = doPoll

    def _poll_now(self) -> list[tuple[int, int]]:
        events: list[tuple[int, int]] = self._poller.poll(0, len(self._selectables))
        return events

    def _wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """What there is, or comes before `timeout` seconds are over."""
        poll: Callable[[float, int], list[tuple[int, int]]] = self._poller.poll
        most = len(self._selectables)
        began = monotonic()
        sleep = -1 if timeout is None else timeout
        if self._short_waits >= SHORT_WAITS:
            while monotonic() - began <= SPIN_SECONDS:
                if events := poll(0, most):
                    return events
            self._short_waits = 0
            return poll(sleep, most)
        events = poll(sleep, most)
        is_short = self._may_spin and monotonic() - began <= SHORT_SECONDS
        self._short_waits = self._short_waits + 1 if is_short else 0
        return events

    def _handle(self, events: list[tuple[int, int]]) -> None:
        selectables = self._selectables
        for descriptor, event in events:
            selectable = selectables.get(descriptor)
            if selectable is None:  # closed by one of those before it
                continue
            try:
                if event == EPOLLIN:
                    self._read(selectable)
                else:
                    self._doReadOrWrite(selectable, descriptor, event)  # type: ignore[no-untyped-call]
            except BaseException:
                _log.failure("the end of {selectable} failed", selectable=selectable)

    def _read(self, selectable: Any) -> None:
        """What fails in there ends this descriptor and nothing else, as in Twisted."""
        try:
            why = selectable.doRead()
        except BaseException:
            _log.failure("reading from {selectable} failed", selectable=selectable)
            why = sys.exc_info()[1]
        if why:
            self._disconnectSelectable(selectable, why, True)  # type: ignore[no-untyped-call]

    def _end(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            try:
                end()
            except BaseException:  # of a timed call Twisted, too, lets nothing through
                _log.failure("the end of a turn failed")


def install() -> None:
    """Make one the reactor of this process. ReactorAlreadyInstalledError if it has one."""
    installReactor(TurnReactor())  # type: ignore[no-untyped-call]
