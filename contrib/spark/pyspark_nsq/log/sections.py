"""
The sections in an answer of nsqtw's ``GET /v2/topic/log``.

    section: "NSQL" | kind 4 | first 8 | count 4 | length 4 | delay ms 8 | due ms 8 | CRC of frames 4 | CRC of this 4
    kind 1:  count messages, with consecutive positions from `first` on, in `length` bytes of frames:
             size 4 | 2 4 | timestamp ns 8 | attempts 2 | id 16 | body ...
    kind 2:  count messages that are lost; no frames
    kind 3:  the headers of the messages of the next section: of each, size 4 | headers (pyspark_nsq.headers)

All integers are big-endian. Sections ascend, with gaps for positions without a message. Other kinds are ignored.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pyspark_nsq.errors import ReadError
from pyspark_nsq.frames import ATTEMPTS_AT, BODY_AT, FAR_BEHIND, ID_AT, TIMESTAMP_AT, big_endian, column_of, starts_of
from pyspark_nsq.headers import column_of as headers_column

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_TYPE = "application/vnd.nsqtw.log; version=1"
_MESSAGES, _LOST, _HEADERS = 1, 2, 3
_SECTION = struct.Struct(">4sIQIIQQII")
_CRC_BYTES = 4
_MAGIC = b"NSQL"


class Section(NamedTuple):
    """`count` messages with the positions `first`, `first` + 1, ...; without frames, lost messages."""

    first: int
    messages: int
    due_ms: int
    frames: bytes | None
    headers: bytes | None = None
    """The content of the section of headers before this one."""


class Cut:
    """The messages of a section from one position to another. Each column is made on demand."""

    def __init__(self, section: Section, low: int, high: int, frames: pa.Array) -> None:
        """`low` and `high` count from the first message of the section."""
        self.first, self.count, self.due_ms = section.first + low, high - low, section.due_ms
        self._section, self._low, self._high, self._frames = section, low, high, frames

    @property
    def bodies(self) -> pa.Array:
        return self._part(BODY_AT, FAR_BEHIND)

    @property
    def ids(self) -> pa.Array:
        return self._part(ID_AT, BODY_AT)

    @property
    def timestamps_ns(self) -> pa.Array:
        return big_endian(self._part(TIMESTAMP_AT, ATTEMPTS_AT))

    @property
    def headers(self) -> pa.Array:
        """The headers as maps. Raises ReadError."""
        import pyarrow as pa

        if self._section.headers is None:
            return pa.nulls(self.count, pa.map_(pa.string(), pa.string()))
        return headers_column(self._section.headers, self._section.messages, self._low, self._high)

    def _part(self, start: int, stop: int) -> pa.Array:
        import pyarrow.compute as pc

        return pc.binary_slice(self._frames, start, stop)


def sections(body: bytes) -> Iterator[Section]:
    """Yield the sections of a body. Raises ReadError when it has another form, or was damaged in transit."""
    at, headers = 0, None
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
            yield Section(first, count, due_ms, frames, headers)
            headers = None
        elif kind == _HEADERS:
            headers = frames
        elif kind == _LOST:
            yield Section(first, count, 0, None)


def cut(section: Section, low: int, high: int) -> Cut:
    """Return the messages of a section with positions from `low` to before `high`. Raises ReadError."""
    frames, starts = _starts(section)
    low, high = (min(max(at - section.first, 0), section.messages) for at in (low, max(low, high)))
    return Cut(section, low, high, column_of(frames, starts, low, high))


def int64s(numbers: array[int]) -> pa.Array:
    """Return an array of type "q" as a column, not copied."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def fit(section: Section, low: int, most_bytes: int) -> tuple[int, int]:
    """Return the position up to which frames from `low` on have at most `most_bytes`, and their bytes."""
    _, starts = _starts(section)
    low = max(low - section.first, 0)
    stop = bisect_right(starts, starts[low] + most_bytes) - 1
    return section.first + stop, starts[stop] - starts[low]


def _starts(section: Section) -> tuple[bytes, array[int]]:
    """Return the frames, the offset of each, and the end of the last one. Raises ReadError."""
    assert section.frames is not None
    return section.frames, starts_of(section.frames, section.messages)
