"""
The header block: the headers of the messages of a segment, and the channel that gets them, as they are stored behind
its frames. Big-endian. A segment without headers and without a channel has no block.

    payload       frames  header block

    header block  headers of each message            channel's name       trailer, 20 bytes
                  u16 length, encoding        ASCII, may be empty

    trailer       0              4                8               12               16
                  block length   channel length   CRC of frames   CRC of headers   CRC of the channel's name and
                  u32            u32              u32             u32              the 16 bytes before: u32

CRC is CRC-32 as in zlib. The frames come first, so they are found without the block. Each part has a checksum of its
own, because their loss costs something different: messages whose headers are damaged are delivered without them, and
messages of which nobody can tell the channel are lost, for the other channels must not get them.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from nsqtw.backends.checksum import crc32
from nsqtw.core.segment import Segment
from nsqtw.message_headers import NO_HEADERS

_LENGTH: Final = struct.Struct(">H")
_TRAILER: Final = struct.Struct(">IIIII")
_CRC: Final = struct.Struct(">I")
TRAILER_BYTES: Final = _TRAILER.size


class Trailer(NamedTuple):
    """The part of a block that tells the others."""

    frames_bytes: int
    """Where the block starts in the payload."""
    channel: str
    frames_crc: int
    headers_crc: int
    headers_end: int
    """Where the channel's name starts in the payload."""


def has_block(segment: Segment) -> bool:
    """Return whether there is something to store beside the frames of a segment."""
    return segment.headers is not None or bool(segment.channel)


def encode_block(segment: Segment) -> bytes:
    encoded = segment.headers or (NO_HEADERS,) * segment.count
    parts = [NO_HEADERS] * (2 * len(encoded))
    parts[0::2] = map(_LENGTH.pack, map(len, encoded))
    parts[1::2] = encoded
    headers = b"".join(parts)
    channel = segment.channel.encode("ascii")
    size = len(headers) + len(channel) + TRAILER_BYTES
    trailer = _TRAILER.pack(size, len(channel), crc32(segment.frames), crc32(headers), 0)[: -_CRC.size]
    return b"".join((headers, channel, trailer, _CRC.pack(crc32(channel + trailer))))


def decode_trailer(payload: bytes | bytearray) -> Trailer | None:
    """The trailer of the block at the end of `payload`; None when it is damaged."""
    at = len(payload) - TRAILER_BYTES
    if at < 0:
        return None
    size, channel_bytes, frames_crc, headers_crc, crc = _TRAILER.unpack_from(payload, at)
    if not channel_bytes + TRAILER_BYTES <= size <= len(payload):
        return None
    headers_end = at - channel_bytes
    if crc32(payload[headers_end : -_CRC.size]) != crc:
        return None
    try:
        channel = bytes(payload[headers_end:at]).decode("ascii")
    except UnicodeDecodeError:
        return None
    return Trailer(len(payload) - size, channel, frames_crc, headers_crc, headers_end)


def decode_block(payload: bytes | bytearray, trailer: Trailer, count: int) -> Sequence[bytes] | None:
    """Return the headers of each of `count` messages in a block with the right checksum; None for another count."""
    headers: list[bytes] = []
    at, end = trailer.frames_bytes, trailer.headers_end
    while at + _LENGTH.size <= end:
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(payload, at)[0]
        headers.append(bytes(payload[start:at]))
    return headers if at == end and len(headers) == count else None


def checked_headers(payload: bytes | bytearray, trailer: Trailer, count: int) -> Sequence[bytes] | None:
    """Like `decode_block`, for bytes that may be damaged; None when they are."""
    if crc32(payload[trailer.frames_bytes : trailer.headers_end]) != trailer.headers_crc:
        return None
    return decode_block(payload, trailer, count)


def segment_of(payload: bytes, first: int, count: int, delay_ms: int) -> Segment | None:
    """The segment whose frames and block are `payload`, which is not damaged; None when it is no such thing."""
    trailer = decode_trailer(payload)
    headers = decode_block(payload, trailer, count) if trailer is not None else None
    if trailer is None or headers is None:
        return None
    return with_headers(first, count, delay_ms, payload[: trailer.frames_bytes], headers, trailer.channel)


def with_headers(
    first: int, count: int, delay_ms: int, frames: bytes, headers: Sequence[bytes], channel: str
) -> Segment:
    """A segment with headers, None when no message has any."""
    return Segment(first, count, delay_ms, frames, headers if any(headers) else None, channel)
