"""
Headers of messages, as nsqd encodes them.

    headers of a message: name length 1 | name | value length 2 | value      ... next header; ascending by name

All integers are big-endian. Names are lower-case ASCII, values UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_nsq.errors import ReadError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COUNT, MAX_BYTES = 64, 16 * 1024

_SIZE = struct.Struct(">i")
_VALUE_SIZE_BYTES = 2


def column_of(content: bytes, count: int, low: int, high: int) -> pa.Array:
    """Return a column of maps for the messages from number `low` to before `high`; null for those without headers.

    `content` has of each of `count` messages the size of its headers in 4 bytes, and the headers. Raises ReadError.
    """
    import pyarrow as pa

    known: dict[bytes, int | None] = {b"": None}
    distinct: list[bytes] = []
    rows: list[int | None] = []
    try:
        for encoded in _each(content, count):
            if encoded not in known:
                known[encoded] = len(distinct)
                distinct.append(encoded)
            rows.append(known[encoded])
        maps = _decoded(distinct)
    except (IndexError, struct.error, pa.ArrowInvalid):
        raise ReadError("nsqd's answer has headers that are damaged") from None
    return maps.take(pa.array(rows[low:high], pa.int32()))


def _each(content: bytes, count: int) -> Iterator[bytes]:
    at, size_at = 0, _SIZE.unpack_from
    for _ in range(count):
        start = at + _SIZE.size
        at = start + size_at(content, at)[0]
        yield content[start:at]
    if at != len(content):
        raise IndexError(at)


def _decoded(messages: Iterable[bytes]) -> pa.Array:
    """Return the headers of each message as a map. Raises IndexError, struct.error, ArrowInvalid."""
    import pyarrow as pa

    names: list[bytes] = []
    values: list[bytes] = []
    ends = [0]
    for encoded in messages:
        at = 0
        while at < len(encoded):
            stop = at + 1 + encoded[at]
            start = stop + _VALUE_SIZE_BYTES
            names.append(encoded[at + 1 : stop])
            at = start + (encoded[stop] << 8 | encoded[stop + 1])
            values.append(encoded[start:at])
        if at != len(encoded):
            raise IndexError(at)
        ends.append(len(names))
    texts = (pa.array(each, pa.binary()).cast(pa.string()) for each in (names, values))
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *texts)
