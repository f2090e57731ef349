"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from collections.abc import Callable

_LEAST_SHARE = 0.5


class Backoff:
    """
    Twice as long after each failure, from `first` up to `longest` seconds, less up to half of it by chance: those who
    failed together do not all come again together. `random` gives numbers from 0 up to 1.
    """

    def __init__(self, first: float, longest: float, random: Callable[[], float]) -> None:
        self._first = self._next = first
        self._longest = longest
        self._random = random

    def reset(self) -> None:
        """All is well: the next failure is the first."""
        self._next = self._first

    def failed(self) -> float:
        """It failed again. Returns how many seconds to wait."""
        wait = self._next * (_LEAST_SHARE + (1 - _LEAST_SHARE) * self._random())
        self._next = min(self._longest, self._next * 2)
        return wait
