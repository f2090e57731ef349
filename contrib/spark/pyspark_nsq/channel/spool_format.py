"""
The files of a spool. All integers are big-endian, all CRCs are CRC-32.

    FIRST.segment   segment head | record ...       FIRST: the number of the first row that it may hold, 20 digits

    segment head    "NSQSPOOL" | version 2 | uuid 16 | first row 8 | forgotten 8 | CRC of this 4

    record          "NSQR" | kind 2 | length of nsqd 2 | first row 8 | rows 4 | length of frames 4 | time 8 | synced 8
                    | CRC of nsqd and frames 4 | CRC of this head 4 | nsqd | frames
    kind 1          so many messages of an nsqd, `host:port`, in frames as they came from it (frames.py), with
                    the numbers first row, first row + 1, ...; time: when they were appended, in seconds since 1970
    kind 2          Spark needs nothing up to and with `first row`; no nsqd, no frames

    FIRST.ids       the ids of a segment that is full, kept for longer than it: spool_ids
    FIRST.new       one of these, unfinished: a crash left it

`synced` is the number of bytes of the file that were synced before the record was written. So a record that is damaged
at a place P was synced if there is a good one with `synced` > P: those are lost rows. If there is none, it is the torn
end of what was written last, and nobody was told that it is there.

The forgotten row of the segment head is what was known when the segment was begun; records of kind 2 follow.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

VERSION = 2
"""Version 1 was a database of SQLite: spool_conversion."""
MESSAGES, FORGOTTEN = 1, 2
SEGMENT_SUFFIX, IDS_SUFFIX, UNFINISHED_SUFFIX = ".segment", ".ids", ".new"

_SEGMENT = struct.Struct(">8sH16sQQI")
_RECORD = struct.Struct(">4sHHQIIqQII")
_SEGMENT_MAGIC, _RECORD_MAGIC = b"NSQSPOOL", b"NSQR"
_CRC_BYTES = 4
SEGMENT_BYTES, RECORD_BYTES = _SEGMENT.size, _RECORD.size


class SegmentHead(NamedTuple):
    """The beginning of a segment. `uuid` tells which spool it belongs to, in hex."""

    uuid: str
    first: int
    forgotten: int


class Record(NamedTuple):
    """The head of a record."""

    kind: int
    nsqd_bytes: int
    first: int
    rows: int
    frame_bytes: int
    at: int
    synced: int
    crc: int

    @property
    def end(self) -> int:
        """The number of its last row."""
        return self.first + self.rows - 1

    @property
    def content_bytes(self) -> int:
        return self.nsqd_bytes + self.frame_bytes


def segment_name(first: int) -> str:
    return f"{first:020d}{SEGMENT_SUFFIX}"


def encode_segment(head: SegmentHead) -> bytes:
    fields = _SEGMENT.pack(_SEGMENT_MAGIC, VERSION, bytes.fromhex(head.uuid), head.first, head.forgotten, 0)
    return fields[:-_CRC_BYTES] + crc32(fields[:-_CRC_BYTES]).to_bytes(_CRC_BYTES, "big")


def decode_segment(data: bytes) -> SegmentHead | None:
    """Return None for anything else, a later version included."""
    if len(data) < SEGMENT_BYTES:
        return None
    magic, version, uuid, first, forgotten, crc = _SEGMENT.unpack_from(data)
    if magic != _SEGMENT_MAGIC or version != VERSION or crc32(data[: SEGMENT_BYTES - _CRC_BYTES]) != crc:
        return None
    return SegmentHead(uuid.hex(), first, forgotten)


def encode_record(record: Record) -> bytes:
    fields = _RECORD.pack(_RECORD_MAGIC, *record, 0)
    return fields[:-_CRC_BYTES] + crc32(fields[:-_CRC_BYTES]).to_bytes(_CRC_BYTES, "big")


def decode_record(data: bytes, at: int = 0) -> Record | None:
    """Return None when there is no good head of a record at `at`."""
    if len(data) - at < RECORD_BYTES:
        return None
    magic, *fields, crc = _RECORD.unpack_from(data, at)
    if magic != _RECORD_MAGIC or crc32(data[at : at + RECORD_BYTES - _CRC_BYTES]) != crc:
        return None
    return Record(*fields)


def next_record(data: bytes, at: int) -> int:
    """Return the place of the first good head of a record at or behind `at`, -1 when there is none."""
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if decode_record(data, at) is not None:
            return at
        at += 1
    return -1
