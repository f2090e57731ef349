"""Waiting for something that is known from some moment on, and for no longer than some time."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred

Found = TypeVar("Found")


def in_time(awaited: Deferred[Found], seconds: float, reactor: Any) -> Deferred[Found]:
    """The same, but after so many seconds it is cancelled and fails with TimeoutError."""
    return awaited.addTimeout(seconds, reactor, _too_late)


def _too_late(outcome: object, seconds: float) -> Any:
    raise TimeoutError("i/o timeout")


class ReadyEvent:
    """Whether it is known yet."""

    def __init__(self) -> None:
        self.is_known = False
        self._waiting: list[Deferred[None]] = []

    def tell(self) -> None:
        """It is known now."""
        self.is_known = True
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    def wait(self) -> Deferred[None]:
        """Fires when it is known. Whoever does not want to wait any more cancels it."""
        waited: Deferred[None] = Deferred()
        if self.is_known:
            waited.callback(None)
        else:
            self._waiting.append(waited)
        return waited
