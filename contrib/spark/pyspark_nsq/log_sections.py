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
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from pyspark_nsq.errors import ReadError

CONTENT_TYPE = "application/vnd.nsqtw.log; version=1"
_MESSAGES, _LOST = 1, 2
_SECTION = struct.Struct(">4sIQIIQQII")
_CRC_BYTES = 4
_MAGIC = b"NSQL"
_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
_TIMESTAMP = struct.Struct(">q")
_TIMESTAMP_AT, _ID_AT, _BODY_AT = 8, 18, 34


class Section(NamedTuple):
    """Messages with the positions `first`, `first` + 1, ...; or, without frames, so many that are lost."""

    first: int
    messages: int
    due_ms: int
    frames: bytes | None


class Cut(NamedTuple):
    """The messages of a section from one place to another, column by column."""

    first: int
    bodies: list[bytes]
    ids: list[bytes]
    timestamps_ns: list[int]
    due_ms: int


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
    frames, starts = _starts(section)
    low = max(low - section.first, 0)
    high = max(min(high - section.first, section.messages), low)
    here = starts[low:high]
    timestamp_at = _TIMESTAMP.unpack_from
    return Cut(
        section.first + low,
        [frames[start + _BODY_AT : end] for start, end in zip(here, starts[low + 1 : high + 1], strict=True)],
        [frames[start + _ID_AT : start + _BODY_AT] for start in here],
        [timestamp_at(frames, start + _TIMESTAMP_AT)[0] for start in here],
        section.due_ms,
    )


def fit(section: Section, low: int, most_bytes: int) -> tuple[int, int]:
    """The position where frames from `low` on have no more than `most_bytes`, and how many they have."""
    _, starts = _starts(section)
    low = max(low - section.first, 0)
    stop = bisect_right(starts, starts[low] + most_bytes) - 1
    return section.first + stop, starts[stop] - starts[low]


def _starts(section: Section) -> tuple[bytes, list[int]]:
    """The frames, where each begins, and where the last one ends. Raises ReadError."""
    frames = section.frames
    assert frames is not None
    size_at, at = _SIZE.unpack_from, 0
    starts = [0]
    try:
        for _ in range(section.messages):
            at += size_at(frames, at)[0] + _SIZE_BYTES
            starts.append(at)
    except struct.error:
        at = -1
    if at != len(frames):
        raise ReadError("nsqd's answer has frames of other sizes than it says")
    return frames, starts
