"""
Changes of the wall clock while the broker runs.

All waiting is measured with the clock of `now`, which cannot be set. The wall clock can be set, by hours too, and
appears in two places: the timestamps of messages, and saved due times. A jump is detected here, so that saved due times
move with the clock, and a message published before the jump does not appear hours old.
"""

# mypyc: compiled

from __future__ import annotations

from math import inf
from typing import Final

JUMP_NS: Final = 1_000_000_000
"""A change of less is a clock that is kept right."""

_MAX_ERAS: Final = 16


class WallClock:
    """The eras between jumps: since when, in the clock of `now`, and how far the wall clock is ahead of that."""

    def __init__(self) -> None:
        self._eras: list[tuple[float, int]] = []

    def record(self, offset_ns: int, now: float) -> int:
        """The wall clock is `offset_ns` ahead now. Returns by how many ms it jumped since the last era began, or 0."""
        if not self._eras:
            self._eras.append((-inf, offset_ns))
            return 0
        moved = offset_ns - self._eras[-1][1]
        if -JUMP_NS < moved < JUMP_NS:
            return 0
        self._eras.append((now, offset_ns))
        if len(self._eras) > _MAX_ERAS:
            del self._eras[0]
            self._eras[0] = (-inf, self._eras[0][1])
        return round(moved / 1_000_000)

    def age_ns(self, timestamp_ns: int, now: float, offset_ns: int) -> int:
        """
        Return how long ago a message was published, never less than nothing. Its timestamp belongs to the newest era in
        which it can have been given; with one era that is where the clock is now.
        """
        now_ns = int(now * 1e9)
        end_ns = float(now_ns + JUMP_NS)
        if len(self._eras) > 1:
            for since, era_offset_ns in reversed(self._eras):
                published_ns = timestamp_ns - era_offset_ns
                if since * 1e9 - JUMP_NS <= published_ns <= end_ns:
                    return max(0, now_ns - published_ns)
                end_ns = since * 1e9 + JUMP_NS
        return max(0, now_ns + offset_ns - timestamp_ns)
