"""
The events of a reactor's descriptors, one turn at a time: from the poll to the end.

The theory of operation is in `nsqtw.runtime.epoll`. That reactor inherits from Twisted's and would gain nothing by
being compiled, so the work for each event is here.

Performance: called once per event and turn.
"""

# mypyc: compiled

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger

SPIN_SECONDS: Final = 30e-6
SHORT_SECONDS: Final = 60e-6
"""A wait in which both sides slept and were woken takes about this long; without that, half as long."""
SHORT_WAITS: Final = 4
"""So many in a row, and the next one is expected to be short, too. Of a consumer's FIN and the next message, which
come in turn, one takes long."""
FOR_EVER: Final = -1.0
"""Seconds to wait, in epoll's words."""
_READABLE: Final[int] = getattr(select, "EPOLLIN", 0)
"""Elsewhere than on Linux there is no epoll, and this is only compiled."""

_log = Logger()

Poll = Callable[[float, int], list[tuple[Any, int]]]
"""The `poll` of an epoll object: waits `seconds`, and returns at most so many descriptors with their events."""


class Events:
    """The events of `reactor`, from `poll`. `now` is a clock in seconds; `may_spin`: whether it may poll repeatedly."""

    def __init__(self, reactor: Any, poll: Poll, now: Callable[[], float], may_spin: bool) -> None:
        self._reactor = reactor
        self._by_descriptor: dict[Any, Any] = reactor._selectables
        self._poll = poll
        self._now = now
        self._may_spin = may_spin
        self._short_waits = 0
        """The number of short waits in a row."""
        self._ends: list[Callable[[], object]] = []

    def at_end(self, call: Callable[[], object]) -> None:
        """Call it once, when everything that can be read now has been read; from such a call: in the next turn."""
        self._ends.append(call)

    def turn(self, seconds: float) -> None:
        """Wait so long for events, or FOR_EVER, and do what they ask. When something waits for the end, do not wait."""
        events = self._poll_now() if self._ends or seconds == 0 else self._wait(seconds)
        self._handle(events)
        if self._ends:
            if len(events) > 1:  # a larger turn costs less per message
                self._handle(self._poll_now())
            self._end()

    def _poll_now(self) -> list[tuple[Any, int]]:
        return self._poll(0, len(self._by_descriptor))

    def _wait(self, seconds: float) -> list[tuple[Any, int]]:
        """Return the events that are there, or arrive within `seconds`."""
        max_events = len(self._by_descriptor)
        began = self._now()
        if self._short_waits >= SHORT_WAITS:
            while self._now() - began <= SPIN_SECONDS:
                if events := self._poll(0, max_events):
                    return events
            self._short_waits = 0
            return self._poll(seconds, max_events)
        events = self._poll(seconds, max_events)
        is_short = self._may_spin and self._now() - began <= SHORT_SECONDS
        self._short_waits = self._short_waits + 1 if is_short else 0
        return events

    def _handle(self, events: list[tuple[Any, int]]) -> None:
        selectables = self._by_descriptor
        for descriptor, event in events:
            selectable = selectables.get(descriptor)
            if selectable is None:  # closed by one of those before it
                continue
            try:
                if event == _READABLE:
                    self._read(selectable)
                else:
                    self._reactor._doReadOrWrite(selectable, descriptor, event)
            except BaseException:
                _log.failure("the end of {selectable} failed", selectable=selectable)

    def _read(self, selectable: Any) -> None:
        """An exception ends this descriptor and nothing else, as in Twisted."""
        try:
            why = selectable.doRead()
        except BaseException:
            _log.failure("reading from {selectable} failed", selectable=selectable)
            why = sys.exc_info()[1]
        if why:
            self._reactor._disconnectSelectable(selectable, why, True)

    def _end(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            try:
                end()
            except BaseException:  # of a timed call Twisted, too, lets nothing through
                _log.failure("the end of a turn failed")
