"""
The sections of `/v2/topic/log`, our format for parts of a topic's log (docs/how-to/retention.md).

    offset  0       4      8       16      20      24         32       40             44
            "NSQL"  kind   first   count   length  delay ms   due ms   CRC of frames  CRC of the 44 bytes before
            4       u32    u64     u32     u32     u64        u64      u32            u32            frames ...

A section of kind 1 has messages, one of kind 3 the headers of the messages of the section behind it: int32 size and
encoded headers of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from nsqtw.errors import LookupFailed
from nsqtw.message_headers import decode_headers

_HEAD = struct.Struct(">4sIQIIQQII")
_MAGIC: Final = b"NSQL"
_MESSAGES: Final = 1
_HEADERS: Final = 3
_SIZE = struct.Struct(">i")
_BODY_AT: Final = 34


class LogMessages(NamedTuple):
    """The messages in an answer: their bodies, and the headers of each."""

    bodies: list[bytes]
    headers: list[dict[str, str]]


def messages_of(data: bytes) -> LogMessages:
    """Return the messages in an answer. LookupFailed when it is damaged or cut off."""
    found = LogMessages([], [])
    headers: list[dict[str, str]] = []
    offset = 0
    while offset < len(data):
        if offset + _HEAD.size > len(data):
            raise LookupFailed("a section of the log is cut off")
        magic, kind, _, count, length, _, _, content_crc, head_crc = _HEAD.unpack_from(data, offset)
        start = offset + _HEAD.size
        offset = start + length
        content = data[start:offset]
        is_good = crc32(data[start - _HEAD.size : start - 4]) == head_crc and crc32(content) == content_crc
        if magic != _MAGIC or len(content) < length or not is_good:
            raise LookupFailed("a section of the log is damaged")
        if kind == _HEADERS:
            headers = [decode_headers(encoded) for encoded in _sized(content)]
        elif kind == _MESSAGES:
            found.bodies.extend(frame[_BODY_AT - _SIZE.size :] for frame in _sized(content))
            found.headers.extend(headers or ({} for _ in range(count)))
            headers = []
    return found


def _sized(content: bytes) -> Iterator[bytes]:
    """Iterate over parts that have their size before them. LookupFailed for a size that cannot be."""
    offset = 0
    while offset < len(content):
        start = offset + _SIZE.size
        size = _SIZE.unpack_from(content, offset)[0] if start <= len(content) else -1
        offset = start + size
        if size < 0 or offset > len(content):
            raise LookupFailed("a section of the log is damaged")
        yield content[start:offset]
