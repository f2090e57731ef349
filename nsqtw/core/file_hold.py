"""
Holds on the files of a broker: while there is one, no message is deleted, so that somebody else may copy the files.

A copy of positions.db that is made during a hold, and copies of the messages that are made after it, are what a crash
would leave: everything that the copy of positions.db knows as unfinished is in the copied messages. Without a hold a
message that is finished meanwhile could be missing there. For the same reason each checkpoint during a hold stores
first what durability class `memory` has not stored yet.

A hold has a time, after which it ends by itself: whoever copies extends it, and is told when it was too late. What was
not deleted is, with the first checkpoint after the last hold.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbelow

from nsqtw.core.timers import Timer, TimerQueue

_FIRST_BELOW = 1 << 48
"""Numbers are whole in JSON up to 2^53."""


class FileHold(Timer):
    """
    The holds of one broker. `released` is called when the last one has ended. The numbers follow a random one, so that
    no hold has the number that another had before a restart; `random` returns a number below the one it is given.
    """

    def __init__(
        self, timers: TimerQueue, released: Callable[[], None], random: Callable[[int], int] = randbelow
    ) -> None:
        super().__init__()
        self._timers = timers
        self._released = released
        self._ends: dict[int, float] = {}
        self._last = random(_FIRST_BELOW)

    @property
    def is_on(self) -> bool:
        """Whether nothing may be deleted."""
        return bool(self._ends)

    def begin(self, now: float, seconds: float) -> int:
        """Begin a hold of `seconds`. Returns its number."""
        self._last += 1
        self._set(self._last, now + seconds)
        return self._last

    def extend(self, number: int, now: float, seconds: float) -> bool:
        """Let a hold last `seconds` from now on. Returns whether it is still there."""
        if number not in self._ends:
            return False
        self._set(number, now + seconds)
        return True

    def end(self, number: int) -> bool:
        """End a hold. Returns whether it was still there."""
        is_there = self._ends.pop(number, None) is not None
        if is_there and not self._ends:
            self._released()
        return is_there

    def on_timer(self, now: float) -> float | None:
        """Timer API: end what is over."""
        for number in [number for number, end in self._ends.items() if end <= now]:
            self.end(number)
        return min(self._ends.values(), default=None)

    def _set(self, number: int, end: float) -> None:
        self._ends[number] = end
        self._timers.schedule(end, self)
