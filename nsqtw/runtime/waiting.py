"""Waiting: for an event with a time limit (`ReadyEvent`), and before another attempt (`RetryDelays`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from nsqtw.runtime.reactor import Reactor

Result = TypeVar("Result")


def in_time(awaited: Deferred[Result], seconds: float, reactor: Reactor) -> Deferred[Result]:
    """Cancel `awaited` after `seconds`, with a TimeoutError, and return it."""
    return awaited.addTimeout(seconds, reactor, _on_timeout)


def _on_timeout(outcome: object, seconds: float) -> Any:
    raise TimeoutError("i/o timeout")


class ReadyEvent:
    """Whether the event has happened."""

    def __init__(self) -> None:
        self.is_known = False
        self._waiting: list[Deferred[None]] = []

    def tell(self) -> None:
        """It is known now."""
        self.is_known = True
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def wait(self) -> Deferred[None]:
        """Fires when it is known. A caller that stops waiting cancels it."""
        waited: Deferred[None] = Deferred()
        if self.is_known:
            waited.callback(None)
        else:
            self._waiting.append(waited)
        return waited


_MIN_SHARE = 0.5


class RetryDelays:
    """
    Delays that double after each failure, from `first` up to `max_seconds` seconds, less up to half of it by chance:
    clients that failed together do not all retry together. `random` returns numbers from 0 up to 1.
    """

    def __init__(self, first: float, max_seconds: float, random: Callable[[], float]) -> None:
        self._first = self._next = first
        self._longest = max_seconds
        self._random = random

    def reset(self) -> None:
        """Start again with `first`: an attempt has succeeded."""
        self._next = self._first

    def failed(self) -> float:
        """It failed again. Returns how many seconds to wait."""
        wait = self._next * (_MIN_SHARE + (1 - _MIN_SHARE) * self._random())
        self._next = min(self._longest, self._next * 2)
        return wait
