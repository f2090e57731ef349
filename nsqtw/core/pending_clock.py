"""
The clock in which pending rows are due: milliseconds that never jump.

While a broker runs it goes with the monotonic clock. Its reading is saved as a wall-clock time and the *shift*, how far
the wall clock is ahead of it: so rows that were saved before the wall clock jumped are right without being written
again, in this process and in the next one. A change of the wall clock while no broker runs shifts the due times.
"""

# mypyc: compiled

from __future__ import annotations

from math import ceil, floor

_ENOUGH_MS = 10
"""A smaller shift than this is not worth a write."""
_DIGITS = 3
"""A float's own rounding, under a microsecond, neither makes a message late by a millisecond nor early."""


class PendingClock:
    """The wall clock in milliseconds, and its conversion to moments, which are seconds in the monotonic clock."""

    def __init__(self) -> None:
        self._base_ms = 0
        self._saved_shift_ms = 0

    def start(self, wall_offset_ns: int, shift_ms: int) -> None:
        """Go on from what was saved: the wall clock is `shift_ms` ahead, and `wall_offset_ns` ahead of the
        monotonic clock."""
        self._base_ms = wall_offset_ns // 10**6 - shift_ms
        self._saved_shift_ms = shift_ms

    def ms_at(self, time: float) -> int:
        """Return the clock's reading at `time`, rounded down: for comparing with due times."""
        return floor(round(time * 1000, _DIGITS)) + self._base_ms

    def due_ms(self, due: float) -> int:
        """Return the clock's reading at `due`, rounded up and never 0: for storing a due time."""
        return max(1, ceil(round(due * 1000, _DIGITS)) + self._base_ms)

    def moment(self, due_ms: int) -> float:
        """Return the time at which this clock shows `due_ms`."""
        return (due_ms - self._base_ms) / 1000

    def shift_to_save(self, wall_offset_ns: int) -> int | None:
        """Return how far the wall clock is ahead now; None when that was saved."""
        shift_ms = wall_offset_ns // 10**6 - self._base_ms
        return None if abs(shift_ms - self._saved_shift_ms) < _ENOUGH_MS else shift_ms

    def saved(self, shift_ms: int) -> None:
        self._saved_shift_ms = shift_ms
