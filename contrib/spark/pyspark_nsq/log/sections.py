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
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pyspark_nsq.errors import ReadError
from pyspark_nsq.frames import (
    ATTEMPTS_AT,
    BODY_AT,
    FAR_BEHIND,
    ID_AT,
    TIMESTAMP_AT,
    big_endian,
    column_of,
    int64s,
    starts_of,
)
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
    frames: bytes | memoryview | None
    headers: bytes | memoryview | None = None
    """The content of the section of headers before this one."""


class Run(NamedTuple):
    """The messages of a section from number `low` to before `high`, counted from its first one."""

    section: Section
    low: int
    high: int

    @property
    def first(self) -> int:
        return self.section.first + self.low

    @property
    def messages(self) -> int:
        return self.high - self.low


class Cut:
    """The messages of an answer from one position to another. Each column is made on demand, for all sections."""

    def __init__(self, runs: list[Run]) -> None:
        """Raises ReadError. All runs have messages; there is at least one."""
        self.count = sum(run.messages for run in runs)
        self._runs = runs
        frames, starts = _joined([run.section for run in runs])
        low, last = runs[0].low, runs[-1]
        self._frames = column_of(frames, starts, low, len(starts) - 1 - (last.section.messages - last.high))

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
    def positions(self) -> pa.Array:
        import pyarrow as pa

        first, last = self._runs[0], self._runs[-1]
        if last.first + last.messages - first.first == self.count:
            return int64s(first.first, self.count)
        return pa.concat_arrays([int64s(run.first, run.messages) for run in self._runs])

    @property
    def due_us(self) -> pa.Array:
        """The time from which a message may be delivered; null for those that were not deferred."""
        import pyarrow as pa

        dues = [run.section.due_ms * 1000 or None for run in self._runs]
        if len(set(dues)) == 1:
            return pa.repeat(pa.scalar(dues[0], pa.int64()), self.count)
        runs = zip(dues, self._runs, strict=True)
        return pa.concat_arrays([pa.repeat(pa.scalar(due, pa.int64()), run.messages) for due, run in runs])

    @property
    def headers(self) -> pa.Array:
        """The headers as maps. Raises ReadError."""
        import pyarrow as pa

        return pa.concat_arrays([_headers(run) for run in self._runs])

    def position_of(self, row: int) -> int:
        """Return the position of the message in a row."""
        for run in self._runs:
            if row < run.messages:
                break
            row -= run.messages
        return run.first + row

    def _part(self, start: int, stop: int) -> pa.Array:
        import pyarrow.compute as pc

        return pc.binary_slice(self._frames, start, stop)


def sections(body: bytes) -> Iterator[Section]:
    """Yield the sections of a body. Raises ReadError when it has another form, or was damaged in transit."""
    at, headers = 0, None
    content = memoryview(body)
    while at < len(body):
        if len(body) - at < _SECTION.size:
            raise ReadError("nsqd's answer ends inside of a section")
        magic, kind, first, count, length, _delay, due_ms, crc, head_crc = _SECTION.unpack_from(body, at)
        if magic != _MAGIC or crc32(body[at : at + _SECTION.size - _CRC_BYTES]) != head_crc:
            raise ReadError("nsqd's answer is no log, or was damaged on its way")
        at += _SECTION.size
        frames = content[at : at + length]
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


def cut(sections: Iterable[Section], low: int, high: int) -> Cut | None:
    """Return the messages with positions from `low` to before `high`, if there are any. Raises ReadError."""
    runs = [_run(section, low, high) for section in sections if section.frames is not None]
    found = [run for run in runs if run.messages]
    return Cut(found) if found else None


def _run(section: Section, low: int, high: int) -> Run:
    return Run(section, *(min(max(at - section.first, 0), section.messages) for at in (low, max(low, high))))


def fit(section: Section, low: int, most_bytes: int) -> tuple[int, int]:
    """Return the position up to which frames from `low` on have at most `most_bytes`, and their bytes."""
    _, starts = _joined([section])
    low = max(low - section.first, 0)
    stop = bisect_right(starts, starts[low] + most_bytes) - 1
    return section.first + stop, starts[stop] - starts[low]


def _joined(sections: list[Section]) -> tuple[bytes, array[int]]:
    """Return the frames of sections, the offset of each, and the end of the last one. Raises ReadError."""
    pieces = [section.frames for section in sections if section.frames is not None]
    frames = b"".join(pieces)
    starts = starts_of(frames, sum(section.messages for section in sections))
    counts = accumulate(section.messages for section in sections)
    if [starts[count] for count in counts] != list(accumulate(len(piece) for piece in pieces)):
        raise ReadError("nsqd's answer has sections with other counts than they say")
    return frames, starts


def _headers(run: Run) -> pa.Array:
    import pyarrow as pa

    if run.section.headers is None:
        return pa.nulls(run.messages, pa.map_(pa.string(), pa.string()))
    return headers_column(bytes(run.section.headers), run.section.messages, run.low, run.high)
