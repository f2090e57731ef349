"""
What GET /v2/topic/log answers: a part of a topic's log, as sections without space between them.

    Content-Type: application/vnd.nsqtw.log; version=1
    X-Nsqtw-Next: 4503599627370506       the position to ask for next
    X-Nsqtw-End: 4503599627370506        one past the last message that may be read now: at Next there is no more yet
    X-Nsqtw-Earliest: 4503599627370496   the oldest message kept: what was asked for below it is gone
    X-Nsqtw-Messages: 10                 how many are in the body
    X-Nsqtw-Lost: 0                      how many are not, because the medium lost them

    section, 48 bytes and the frames; all numbers are big-endian
    offset  0       4      8       16      20      24         32       40             44
            "NSQL"  kind   first   count   length  delay ms   due ms   CRC of frames  CRC of the 44 bytes before
            4       u32    u64     u32     u32     u64        u64      u32            u32            frames ...

    kind 1  `count` messages with the sequences from `first` on, as `length` bytes of frames, as a consumer gets them:
            int32 size | int32 2 | int64 timestamp (ns) | uint16 attempts, 1 | 16-byte id | body, size counting what
            follows it. Those that were published deferred have `delay`, and `due`, when they may be delivered, in ms of
            Unix time; for all others both are 0.
    kind 2  `count` messages from `first` on that were published, and cannot be read any more. length is 0.

CRC is CRC-32 as in zlib. Sections ascend and have gaps between them, where no message ever was or the topic was
emptied. A reader passes over kinds it does not know; a version with another layout has another content type.
"""

from __future__ import annotations

import struct

from nsqtw.backends.checksum import crc32
from nsqtw.core.log_reader import Extract
from nsqtw.core.segment import Segment

CONTENT_TYPE = b"application/vnd.nsqtw.log; version=1"
MAGIC = b"NSQL"
MESSAGES, LOST = 1, 2
SECTION = struct.Struct(">4sIQIIQQI")
CRC = struct.Struct(">I")

_NS_PER_MS = 10**6


def encode(extract: Extract) -> bytes:
    """The sections of a part of a log."""
    pieces: list[bytes] = []
    for part in extract.parts:
        if isinstance(part, Segment):
            frames = part.frames
            due_ms = part.timestamp_ns // _NS_PER_MS + part.delay_ms if part.delay_ms else 0
            pieces += (_head(MESSAGES, part.first, part.count, part.delay_ms, due_ms, frames), frames)
        else:
            pieces.append(_head(LOST, part.start, len(part), 0, 0, b""))
    return b"".join(pieces)


def _head(kind: int, first: int, count: int, delay_ms: int, due_ms: int, frames: bytes) -> bytes:
    head = SECTION.pack(MAGIC, kind, first, count, len(frames), delay_ms, due_ms, crc32(frames))
    return head + CRC.pack(crc32(head))
