"""
Headers of messages as the HTTP API of nsqd has them (docs/how-to/headers.md).

The headers of one message, ascending by name, and the body of an /mpub whose messages have headers; big-endian:

    u8 name length | name | u16 value length | value      ... next header
    "NSQH" | int32 count | count x (int32 headers size | headers | int32 size | body)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nsqtw.errors import InvalidHeaders

_SIZE = struct.Struct(">i")
_VALUE_SIZE = struct.Struct(">H")
_MAGIC: Final = b"NSQH"
_MAX_NAME_BYTES: Final = 255
_MAX_VALUE_BYTES: Final = 65535


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Encode the headers of a message. InvalidHeaders for what has no encoding; nsqd checks the rest."""
    parts: list[bytes] = []
    for name, value in sorted({name.lower(): value for name, value in headers.items()}.items()):
        try:
            encoded_name, encoded_value = name.encode("ascii"), value.encode()
        except UnicodeEncodeError:
            raise InvalidHeaders(f"header {name!r}: a name is ASCII, a value UTF-8") from None
        if not 0 < len(encoded_name) <= _MAX_NAME_BYTES or len(encoded_value) > _MAX_VALUE_BYTES:
            raise InvalidHeaders(f"header {name[:_MAX_NAME_BYTES]!r} is too long, or has no name")
        parts += (bytes((len(encoded_name),)), encoded_name, _VALUE_SIZE.pack(len(encoded_value)), encoded_value)
    return b"".join(parts)


def decode_headers(encoded: bytes) -> dict[str, str]:
    """Decode the headers of a message. InvalidHeaders."""
    try:
        return dict(_decoded(encoded))
    except (IndexError, struct.error, UnicodeDecodeError):
        raise InvalidHeaders("the headers of a message are damaged") from None


def mpub_body(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> bytes:
    """Return the body of an /mpub with binary=true and headers=true. InvalidHeaders."""
    parts = [_MAGIC, _SIZE.pack(len(messages))]
    for body, headers in messages:
        encoded = encode_headers(headers)
        parts += (_SIZE.pack(len(encoded)), encoded, _SIZE.pack(len(body)), body)
    return b"".join(parts)


def _decoded(encoded: bytes) -> Iterator[tuple[str, str]]:
    offset = 0
    while offset < len(encoded):
        stop = offset + 1 + encoded[offset]
        name = encoded[offset + 1 : stop].decode("ascii")
        start = stop + _VALUE_SIZE.size
        offset = start + _VALUE_SIZE.unpack_from(encoded, stop)[0]
        yield name, encoded[start:offset].decode()
