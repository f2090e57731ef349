"""
The files of a spool. All integers are big-endian, all CRCs are CRC-32.

    FIRST.segment   segment head | record ...       FIRST: the number of the first row that it may have, 20 digits

    segment head    "NSQSPOOL" | version 2 | uuid 16 | first row 8 | forgotten 8 | CRC of this 4

    record          "NSQR" | kind 2 | length of nsqd 2 | first row 8 | rows 4 | length of frames 4 | time 8 | synced 8
                    | CRC of nsqd and frames 4 | CRC of this head 4 | nsqd | frames
    kind 1          the messages of an nsqd, `host:port`, in its frames (frames.py), with
                    the numbers first row, first row + 1, ...; time: when they were appended, in seconds since 1970
    kind 2          Spark needs no row up to `first row` any more; no nsqd, no frames

    FIRST.ids       the ids of a full segment, kept longer than the segment: spool_ids
    FIRST.new       an incomplete file after a crash

`synced` is the number of bytes of the file that were synced before the record was written. So a damaged record at the
offset P was synced if there is a good record with `synced` > P: its rows are lost. Otherwise it is the incomplete end
of the last write, and its messages were not finished.

The forgotten row of the segment head is that of the beginning of the segment; records of kind 2 have later ones.
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
    """The head of a segment. `uuid` identifies its spool, in hex."""

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
    """Return the head of a segment; None for other data, such as that of a later version."""
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
    """Return the head of the record at `at`; None when there is no good one."""
    if len(data) - at < RECORD_BYTES:
        return None
    magic, *fields, crc = _RECORD.unpack_from(data, at)
    if magic != _RECORD_MAGIC or crc32(data[at : at + RECORD_BYTES - _CRC_BYTES]) != crc:
        return None
    return Record(*fields)


def next_record(data: bytes, at: int) -> int:
    """Return the offset of the first good head of a record at or behind `at`, -1 when there is none."""
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if decode_record(data, at) is not None:
            return at
        at += 1
    return -1
