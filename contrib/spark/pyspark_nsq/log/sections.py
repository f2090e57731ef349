"""
What nsqtw's ``GET /v2/topic/log`` answers, taken apart.

    section: "NSQL" | kind 4 | first 8 | count 4 | length 4 | delay ms 8 | due ms 8 | CRC of frames 4 | CRC of this 4
    kind 1:  count messages, with consecutive positions from `first` on, in `length` bytes of frames:
             size 4 | 2 4 | timestamp ns 8 | attempts 2 | id 16 | body ...
    kind 2:  count messages that are lost; no frames

All integers are big-endian. Sections ascend, with gaps where no message ever was. Other kinds are passed over.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pyspark_nsq.errors import ReadError

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_TYPE = "application/vnd.nsqtw.log; version=1"
_MESSAGES, _LOST = 1, 2
_SECTION = struct.Struct(">4sIQIIQQII")
_CRC_BYTES = 4
_MAGIC = b"NSQL"
_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
_TIMESTAMP_AT, _ID_AT, _BODY_AT = 8, 18, 34
_ATTEMPTS_BYTES = 2
#: More bytes than a message has. Without an end, Arrow 26 computes with a number that overflows.
_FAR_BEHIND = 1 << 31


class Section(NamedTuple):
    """Messages with the positions `first`, `first` + 1, ...; or, without frames, so many that are lost."""

    first: int
    messages: int
    due_ms: int
    frames: bytes | None


class Cut:
    """The messages of a section from one place to another. Each column is made when it is asked for."""

    def __init__(self, first: int, count: int, due_ms: int, frames: pa.Array) -> None:
        self.first, self.count, self.due_ms, self._frames = first, count, due_ms, frames

    @property
    def bodies(self) -> pa.Array:
        return self._part(_BODY_AT, _FAR_BEHIND)

    @property
    def ids(self) -> pa.Array:
        return self._part(_ID_AT, _BODY_AT)

    @property
    def timestamps_ns(self) -> pa.Array:
        return _big_endian(self._part(_TIMESTAMP_AT, _ID_AT - _ATTEMPTS_BYTES))

    def _part(self, start: int, stop: int) -> pa.Array:
        import pyarrow.compute as pc

        return pc.binary_slice(self._frames, start, stop)


def sections(body: bytes) -> Iterator[Section]:
    """Raises ReadError when the body is something else, or damaged on its way."""
    at = 0
    while at < len(body):
        if len(body) - at < _SECTION.size:
            raise ReadError("nsqd's answer ends inside of a section")
        magic, kind, first, count, length, _delay, due_ms, crc, head_crc = _SECTION.unpack_from(body, at)
        if magic != _MAGIC or crc32(body[at : at + _SECTION.size - _CRC_BYTES]) != head_crc:
            raise ReadError("nsqd's answer is no log, or was damaged on its way")
        at += _SECTION.size
        frames = body[at : at + length]
        if len(frames) != length or crc32(frames) != crc:
            raise ReadError("nsqd's answer was damaged on its way")
        at += length
        if kind == _MESSAGES:
            yield Section(first, count, due_ms, frames)
        elif kind == _LOST:
            yield Section(first, count, 0, None)


def cut(section: Section, low: int, high: int) -> Cut:
    """The messages of a section with positions from `low` to before `high`. Raises ReadError."""
    import pyarrow as pa

    frames, starts = _starts(section)
    low, high = (min(max(at - section.first, 0), section.messages) for at in (low, max(low, high)))
    # The frames as a column whose offsets are where they begin: each of their parts is then one step for all rows.
    buffers = [None, pa.py_buffer(starts[low : high + 1]), pa.py_buffer(frames)]
    column = pa.BinaryArray.from_buffers(pa.binary(), high - low, buffers)
    return Cut(section.first + low, high - low, section.due_ms, column)


def int64s(numbers: array[int]) -> pa.Array:
    """An array of type "q" as a column, not copied."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _big_endian(column: pa.Array) -> pa.Array:
    """The numbers of a column that has them as 8 bytes in each row."""
    numbers = array("q")
    if len(column):
        _, offsets, data = column.buffers()
        start = memoryview(offsets).cast("i")[column.offset]
        numbers.frombytes(memoryview(data)[start : start + numbers.itemsize * len(column)])
    if sys.byteorder == "little":
        numbers.byteswap()
    return int64s(numbers)


def fit(section: Section, low: int, most_bytes: int) -> tuple[int, int]:
    """The position where frames from `low` on have no more than `most_bytes`, and how many they have."""
    _, starts = _starts(section)
    low = max(low - section.first, 0)
    stop = bisect_right(starts, starts[low] + most_bytes) - 1
    return section.first + stop, starts[stop] - starts[low]


def _starts(section: Section) -> tuple[bytes, array[int]]:
    """The frames, where each begins, and where the last one ends. Raises ReadError."""
    frames, count = section.frames, section.messages
    assert frames is not None
    size = _size_of_all(frames, count)
    if size:
        return frames, array("i", range(0, len(frames) + 1, size))
    size_at, at = _SIZE.unpack_from, 0
    starts = array("i", [0])
    try:
        for _ in range(count):
            size = size_at(frames, at)[0] + _SIZE_BYTES
            if size < _BODY_AT:  # Arrow is handed offsets, and trusts them
                raise ReadError("nsqd's answer has a frame without a head")
            at += size
            starts.append(at)
    except (struct.error, OverflowError):
        at = -1
    if at != len(frames):
        raise ReadError("nsqd's answer has frames of other sizes than it says")
    return frames, starts


def _size_of_all(frames: bytes, count: int) -> int:
    """The bytes of each frame when all have the same, which is common, and found without a look at each; else 0."""
    size, rest = divmod(len(frames), count) if count else (0, 1)
    if rest or size < _BODY_AT:
        return 0
    said = _SIZE.pack(size - _SIZE_BYTES)
    alike = all(frames[at::size] == said[at : at + 1] * count for at in range(_SIZE_BYTES))
    return size if alike else 0
