"""
The sections of `/v2/topic/log`, our format for parts of a topic's log (docs/how-to/retention.md).

    offset  0       4      8       16      20      24         32       40             44
            "NSQL"  kind   first   count   length  delay ms   due ms   CRC of frames  CRC of the 44 bytes before
            4       u32    u64     u32     u32     u64        u64      u32            u32            frames ...
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from nsqtw.errors import LookupFailed

_HEAD = struct.Struct(">4sIQIIQQII")
_MAGIC: Final = b"NSQL"
_MESSAGES: Final = 1
_FRAME = struct.Struct(">i")
_BODY_AT: Final = 34


def bodies_of(data: bytes) -> list[bytes]:
    """Return the bodies of the messages in an answer. LookupFailed when it is damaged or cut off."""
    bodies: list[bytes] = []
    offset = 0
    while offset < len(data):
        if offset + _HEAD.size > len(data):
            raise LookupFailed("a section of the log is cut off")
        magic, kind, _, _, length, _, _, frames_crc, head_crc = _HEAD.unpack_from(data, offset)
        start = offset + _HEAD.size
        end = start + length
        frames = data[start:end]
        is_good = crc32(data[offset : start - 4]) == head_crc and crc32(frames) == frames_crc
        if magic != _MAGIC or len(frames) < length or not is_good:
            raise LookupFailed("a section of the log is damaged")
        position = 0
        while kind == _MESSAGES and position < length:
            (size,) = _FRAME.unpack_from(frames, position)
            bodies.append(frames[position + _BODY_AT : position + 4 + size])
            position += 4 + size
        offset = end
    return bodies
