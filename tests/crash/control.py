"""
What the nemesis tells a broker's launcher while both run: a few numbers in a file that both have mapped.

    wall clock   nanoseconds that it is ahead of what it would be
    window       the number of the full disk that has begun last, or 0 when there is room
    space        how many bytes can still be written in that window
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

WALL_START_NS = 1_700_000_000 * 10**9
"""The wall clock of a broker when the monotonic clock of the machine began."""
_NUMBERS = struct.Struct("=qqq")


class Control:
    """One side of it; the nemesis makes the file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_NUMBERS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBERS.size)

    @property
    def wall_offset_ns(self) -> int:
        return self._get(0)

    @wall_offset_ns.setter
    def wall_offset_ns(self, value: int) -> None:
        self._set(0, value)

    def fill_disk(self, window: int, space: int) -> None:
        """From now on there are `space` bytes left on the disk."""
        self._set(2, space)
        self._set(1, window)

    def free_disk(self) -> None:
        """There is room again."""
        self._set(1, 0)

    @property
    def window(self) -> int:
        return self._get(1)

    @property
    def space(self) -> int:
        return self._get(2)

    def _get(self, place: int) -> int:
        value: int = struct.unpack_from("=q", self._map, 8 * place)[0]
        return value

    def _set(self, place: int, value: int) -> None:
        struct.pack_into("=q", self._map, 8 * place, value)
