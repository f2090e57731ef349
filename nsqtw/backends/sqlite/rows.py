"""
One row of `messages.db`, and how to tell that it is not what was stored.

    topic  last  first  delay  crc  frames    head
                               └ of frames    └ CRC-32 of the five numbers; NULL in rows of version 1

SQLite stores anything in any column. A row whose numbers are not those that were written is as bad as one whose frames
are not; but good frames carry their ids, so `numbers_of` can tell the numbers again.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from nsqtw.backends.checksum import crc32
from nsqtw.backends.disk.salvage import repaired_bytes
from nsqtw.core.segment import BODY_AT, ID_AT, SEQUENCE_BITS, Segment, sequence_of

COLUMNS = "id, topic, first, last, delay, crc, frames, head"

_NUMBERS = struct.Struct("<5Q")
_SIZE = struct.Struct(">I")
_HIGHEST = 1 << SEQUENCE_BITS
_HIGHEST_CRC = (1 << 32) - 1

WRONG_FRAMES = "the checksum of the frames is wrong"
WRONG_NUMBERS = "its numbers are not those that were stored"


class Row(NamedTuple):
    """A row as it is read: any column may have any value."""

    row_id: int
    topic: Any
    first: Any
    last: Any
    delay: Any
    crc: Any
    frames: Any
    head: Any

    def fault(self) -> str:
        """Why this is not what was stored; "" when it is."""
        if not isinstance(self.frames, bytes) or not self.frames:
            return WRONG_FRAMES
        if not all(type(number) is int for number in self[1:6]):
            return WRONG_NUMBERS
        if not 0 <= self.first <= self.last < _HIGHEST or self.delay < 0:
            return WRONG_NUMBERS
        if crc32(self.frames) != self.crc:
            return WRONG_FRAMES
        if self.head is None:
            return "" if numbers_of(self.frames) == (self.first, self.last) else WRONG_NUMBERS
        good = self.topic >= 0 and self.head == head_of(self.topic, self.first, self.last, self.delay, self.crc)
        return "" if good else WRONG_NUMBERS

    def with_bit_put_right(self) -> Row | None:
        """The row as it was stored, if one bit of its frames is all that is wrong with it."""
        if not isinstance(self.frames, bytes) or type(self.crc) is not int or not 0 <= self.crc <= _HIGHEST_CRC:
            return None
        frames = repaired_bytes(self.frames, self.crc)
        row = self._replace(frames=frames) if frames is not None else None
        if row is None or row.fault() or numbers_of(row.frames) != (row.first, row.last):
            return None
        return row

    def segment(self) -> Segment:
        """Its contents; without a `fault`."""
        return Segment(self.first, self.last + 1 - self.first, self.delay, self.frames)

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """The first and the last sequence of it; `low` and `high` for what cannot be told."""
        last = self.last if type(self.last) is int and low <= self.last <= high else max(low, high)
        first = self.first if type(self.first) is int and low <= self.first <= last else low
        return first, last

    def repaired(self) -> Row | None:
        """Return the row with the numbers from its frames, if these are good. An impossible delay is none."""
        if not isinstance(self.frames, bytes) or type(self.crc) is not int or crc32(self.frames) != self.crc:
            return None
        numbers = numbers_of(self.frames)
        if numbers is None or type(self.topic) is not int or self.topic < 0:
            return None
        delay = self.delay if type(self.delay) is int and 0 <= self.delay < _HIGHEST else 0
        return self._replace(first=numbers[0], last=numbers[1], delay=delay, head=None)


def head_of(topic: int, first: int, last: int, delay: int, crc: int) -> int:
    """The checksum of a row's numbers."""
    return crc32(_NUMBERS.pack(topic, first, last, delay, crc))


def numbers_of(frames: bytes) -> tuple[int, int] | None:
    """The first and the last sequence of frames, by their ids; None if these are no frames with consecutive ids."""
    first = count = offset = 0
    try:
        while offset < len(frames):
            sequence = sequence_of(frames[offset + ID_AT : offset + BODY_AT])
            first = first if count else sequence
            if sequence != first + count:
                return None
            count += 1
            offset += _SIZE.unpack_from(frames, offset)[0] + _SIZE.size
    except (ValueError, struct.error):
        return None
    return (first, first + count - 1) if count and offset == len(frames) else None
