"""
Message frames with headers, for V2 clients that asked for them in IDENTIFY ("headers": true).

A message without headers is a frame of type 2 for them, too. One with headers is:

    0       4       8            16        18     34             36       36+n
    size    3       timestamp    attempts  id     headers size   headers  body
    u32     u32     i64          u16       16     u16 = n        n        the rest

The headers are encoded as in `nsqtw.message_headers`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from nsqtw.core.segment import BODY_AT, SIZE_BYTES
from nsqtw.protocols.frames import HEAD

FRAME_TYPE_HEADED: Final = 3
_HEADERS_SIZE: Final = struct.Struct(">H")


def with_headers(frames: bytes, headers: Sequence[bytes]) -> bytes:
    """Return the same messages with their headers, of which some may be empty."""
    parts: list[bytes] = []
    offset = 0
    for encoded in headers:
        size, _ = HEAD.unpack_from(frames, offset)
        stop = offset + SIZE_BYTES + size
        if encoded:
            more = _HEADERS_SIZE.size + len(encoded)
            parts += (
                HEAD.pack(size + more, FRAME_TYPE_HEADED),
                frames[offset + HEAD.size : offset + BODY_AT],
                _HEADERS_SIZE.pack(len(encoded)),
                encoded,
                frames[offset + BODY_AT : stop],
            )
        else:
            parts.append(frames[offset:stop])
        offset = stop
    return b"".join(parts)


def headers_bytes(frames: bytes, offset: int) -> int:
    """Return how many bytes the headers at an offset have, with their size."""
    size: int = _HEADERS_SIZE.unpack_from(frames, offset)[0]
    return _HEADERS_SIZE.size + size
