"""
One row of `messages.db`, and the detection of damage to it.

    topic  last  first  delay  crc  frames  head                          headers
                               └ of frames  └ NULL in rows of version 1   └ a header block (`header_block`); NULL for
                                                                            messages without headers and channel

    head: the CRC-32 of the five numbers and the header block, and in the eight bits above which kind of row it is:
        0x00  without a header block
        0x0f  with one that has no channel
        0xf0  with one that has a channel

SQLite stores anything in any column. A row whose numbers are not those that were written is as bad as one whose frames
are not; but good frames carry their ids, so `numbers_of` can tell the numbers again.
"""

from __future__ import annotations

import sqlite3
import struct
from typing import Any, NamedTuple

from nsqtw.backends.checksum import crc32
from nsqtw.backends.connection import corrupt
from nsqtw.backends.disk.salvage import WRONG_FRAMES, WRONG_HEADERS
from nsqtw.backends.header_block import (
    Trailer,
    checked_headers,
    decode_block,
    decode_trailer,
    encode_block,
    has_block,
    with_headers,
)
from nsqtw.core.segment import BODY_AT, ID_AT, SEQUENCE_BITS, Segment, sequence_of
from nsqtw.message_headers import NO_HEADERS

COLUMNS = "id, topic, first, last, delay, crc, frames, head, headers"

_ROW = f"SELECT {COLUMNS} FROM segment WHERE id = ?"
_NUMBERS = struct.Struct("<5Q")
_SIZE = struct.Struct(">I")
_HIGHEST = 1 << SEQUENCE_BITS
_CRC_BITS = 32
_WITH_HEADERS = 0x0F
_DIRECTED = 0xF0
LOWEST_DIRECTED_HEAD = _DIRECTED << _CRC_BITS
"""The heads of rows with a channel are not below it, those of others are."""

UNKNOWN_CHANNEL = "the headers are damaged, and nothing tells the channel that gets the messages"
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
    headers: Any

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
            is_good = self.headers is None and numbers_of(self.frames) == (self.first, self.last)
            return "" if is_good else WRONG_NUMBERS
        if self.headers is None:
            is_good = self.topic >= 0 and self.head == self._head(b"", 0)
            return "" if is_good else self._headers_fault() if self._may_be_directed else WRONG_NUMBERS
        trailer = self._trailer()
        if trailer is None or checked_headers(self.headers, trailer, self._count) is None:
            return self._headers_fault()
        kind = _DIRECTED if trailer.channel else _WITH_HEADERS
        is_good = self.topic >= 0 and self.head == self._head(self.headers, kind)
        return "" if is_good else WRONG_NUMBERS

    def _headers_fault(self) -> str:
        """Headers that do not fit the numbers: the ids in the frames tell which of them are wrong."""
        return WRONG_HEADERS if numbers_of(self.frames) == (self.first, self.last) else WRONG_NUMBERS

    def without_damaged_headers(self) -> Row | None:
        """
        The row, whose numbers and frames are good, with headers only if they are good, and with its channel. None when
        the channel cannot be told.
        """
        trailer = self._trailer()
        if trailer is None and self._may_be_directed:
            return None
        headers = checked_headers(self.headers, trailer, self._count) if trailer is not None else None
        channel = trailer.channel if trailer is not None else ""
        segment = with_headers(self.first, self._count, self.delay, self.frames, headers or [NO_HEADERS], channel)
        return Row(self.row_id, *values_of(self.topic, segment))

    def segment(self) -> Segment:
        """Its contents; without a `fault`."""
        if self.headers is None:
            return Segment(self.first, self._count, self.delay, self.frames)
        trailer = decode_trailer(self.headers)
        headers = decode_block(self.headers, trailer, self._count) if trailer is not None else None
        assert trailer is not None and headers is not None, "the row was checked"
        return with_headers(self.first, self._count, self.delay, self.frames, headers, trailer.channel)

    @property
    def channel(self) -> str:
        """The only channel that gets its messages; "" if all do, or that cannot be told."""
        trailer = self._trailer()
        return trailer.channel if trailer is not None else ""

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
        return self._replace(first=numbers[0], last=numbers[1], delay=delay).without_damaged_headers()

    @property
    def _count(self) -> int:
        return int(self.last) + 1 - int(self.first)

    @property
    def _may_be_directed(self) -> bool:
        return type(self.head) is int and self.head >> _CRC_BITS == _DIRECTED

    def _head(self, block: bytes, kind: int) -> int:
        return _head_of(self.topic, self.first, self.last, self.delay, self.crc, block, kind)

    def _trailer(self) -> Trailer | None:
        """The trailer of the header block; None when it is damaged, or that of another row."""
        trailer = decode_trailer(self.headers) if isinstance(self.headers, bytes) else None
        is_own = trailer is not None and not trailer.frames_bytes and trailer.frames_crc == self.crc
        return trailer if is_own else None


def read_row(connection: sqlite3.Connection, row_id: int) -> Row:
    """
    Return a row that an index has. sqlite3.DatabaseError when the database is broken, also when the table has no such
    row.
    """
    values = connection.execute(_ROW, (row_id,)).fetchone()
    if values is None:
        raise corrupt(f"the index has the segment {row_id}, which the table has not")
    return Row(*values)


def values_of(topic_id: int, segment: Segment) -> tuple[Any, ...]:
    """The values of the row of a segment, in the order of COLUMNS, without the id."""
    crc, last = crc32(segment.frames), segment.end - 1
    block, kind = b"", 0
    if has_block(segment):
        block, kind = encode_block(segment), _DIRECTED if segment.channel else _WITH_HEADERS
    head = _head_of(topic_id, segment.first, last, segment.delay_ms, crc, block, kind)
    return topic_id, segment.first, last, segment.delay_ms, crc, segment.frames, head, block or None


def _head_of(topic: int, first: int, last: int, delay: int, crc: int, block: bytes, kind: int) -> int:
    return crc32(block, crc32(_NUMBERS.pack(topic, first, last, delay, crc))) | kind << _CRC_BITS


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
