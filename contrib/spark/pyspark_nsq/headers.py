"""
Headers of messages, as nsqd encodes them.

    headers of a message: name length 1 | name | value length 2 | value      ... next header; ascending by name

All integers are big-endian. Names are lower-case ASCII, values UTF-8.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_nsq.errors import ReadError, RowError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COUNT, MAX_BYTES = 64, 16 * 1024

_NAME = re.compile(r"(?!nsq-)[a-z0-9][a-z0-9._-]{0,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SIZE = struct.Struct(">i")
_VALUE_SIZE = struct.Struct(">H")


def encode(headers: Mapping[str, str | None]) -> bytes:
    """Return the headers of one message, without those whose value is null. Raises RowError."""
    parts: list[bytes] = []
    lowered = {name.lower(): value for name, value in headers.items() if value is not None}
    for name, value in sorted(lowered.items()):
        if _NAME.fullmatch(name) is None:
            raise RowError(
                f'"{name[:128]}" is no name of a header: 1 to 128 letters, digits, ".", "_" and "-", not from "nsq-" on'
            )
        data = value.encode()
        if _CONTROL.search(value) or len(data) > MAX_BYTES:
            raise RowError(f'the header "{name}" has a control character, or more than {MAX_BYTES} bytes')
        parts += (bytes((len(name),)), name.encode(), _VALUE_SIZE.pack(len(data)), data)
    encoded = b"".join(parts)
    if len(lowered) > MAX_COUNT or len(encoded) > MAX_BYTES:
        raise RowError(f"a message has {MAX_COUNT} headers at most, in {MAX_BYTES} bytes")
    return encoded


def column_of(content: bytes, count: int, low: int, high: int) -> pa.Array:
    """Return a column of maps for the messages from number `low` to before `high`; null for those without headers.

    `content` has of each of `count` messages the size of its headers in 4 bytes, and the headers. Raises ReadError.
    """
    import pyarrow as pa

    known: dict[bytes, list[tuple[str, str]] | None] = {b"": None}
    maps: list[list[tuple[str, str]] | None] = []
    try:
        for encoded in _each(content, count):
            if encoded not in known:
                known[encoded] = list(_decoded(encoded))
            maps.append(known[encoded])
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ReadError("nsqd's answer has headers that are damaged") from None
    return pa.array(maps[low:high], pa.map_(pa.string(), pa.string()))


def _each(content: bytes, count: int) -> Iterator[bytes]:
    at = 0
    for _ in range(count):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(content, at)[0]
        yield content[start:at]
    if at != len(content):
        raise IndexError(at)


def _decoded(encoded: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(encoded):
        stop = at + 1 + encoded[at]
        start = stop + _VALUE_SIZE.size
        name, at = encoded[at + 1 : stop].decode(), start + _VALUE_SIZE.unpack_from(encoded, stop)[0]
        yield name, encoded[start:at].decode()
