"""
The reactor of a daemon: Twisted's, on epoll, with less between an event and whom it concerns.

Theory of operation. Twisted's reactor sets a logging context around each event, which nobody here reads, and what is to
be done when all that can be read was read is a timed call like any other: made, sorted, looked at and dropped. To a
broker that answers single messages the two cost 7 us of the 49 that a message took. So here an event goes straight to
its descriptor, and what is to be done at the end of a turn (`nsqtw.net.turns.end_of_turn`) waits in a list. All else is
Twisted's. On Twisted's own reactors everything works as well: tests use them, and `twistd --reactor`.

This module is hot, once per event and turn.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor
from twisted.logger import Logger

_log = Logger()


class TurnReactor(EPollReactor):
    """An epoll reactor whose turns have an end."""

    _selectables: dict[int, Any]

    def __init__(self) -> None:
        self._ends: list[Callable[[], object]] = []
        super().__init__()  # type: ignore[no-untyped-call]

    def at_end(self, call: Callable[[], object]) -> None:
        """Call it once, when everything that can be read now has been read; from such a call: in the next turn."""
        self._ends.append(call)

    def timeout(self) -> float | None:
        return 0.0 if self._ends else super().timeout()

    def doPoll(self, timeout: float | None) -> None:
        selectables = self._selectables
        try:
            events = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
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
        if self._ends:
            self._end()

    doIteration = doPoll

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
