"""
Frames of messages as columns, for a topic's log and for the spool of a channel.

    frame    size 4 | 2 4 | timestamp ns 8 | attempts 2 | id 16 | body ...       size counts everything behind itself

All integers are big-endian. Arrow gets the frames in one buffer and their offsets. A part of all frames, such as their
ids, takes one step of Arrow, and no object of Python is made for a row.
"""

from __future__ import annotations

import struct
import sys
from array import array
from functools import cache
from typing import TYPE_CHECKING

from pyspark_nsq.errors import ReadError

if TYPE_CHECKING:
    import pyarrow as pa

SIZE_BYTES = 4
TIMESTAMP_AT, ATTEMPTS_AT, ID_AT, BODY_AT = 8, 16, 18, 34
#: More bytes than a message has. Without an end, Arrow 26 computes with a number that overflows.
FAR_BEHIND = 1 << 31
_HEAD = struct.Struct(">iI")
_SIZE = struct.Struct(">i")
_MESSAGE = 2


def starts_of(frames: bytes, count: int) -> array[int]:
    """Return the offset of each frame, and the end of the last one. Raises ReadError."""
    size = size_of_all(frames, count)
    if size:
        return _multiples(size, count + 1)
    size_at, at = _SIZE.unpack_from, 0
    starts = array("i", [0])
    try:
        for _ in range(count):
            size = size_at(frames, at)[0] + SIZE_BYTES
            if size < BODY_AT:  # Arrow does not check the offsets
                raise ReadError("nsqd's answer has a frame without a head")
            at += size
            starts.append(at)
    except (struct.error, OverflowError):
        at = -1
    if at != len(frames):
        raise ReadError("nsqd's answer has frames of other sizes than it says")
    return starts


def size_of_all(frames: bytes, count: int) -> int:
    """
    Return the bytes of each frame when all are messages of the same size, else 0. Messages of one size are common, and
    found without reading each frame.
    """
    size, rest = divmod(len(frames), count) if count else (0, 1)
    if rest or size < BODY_AT:
        return 0
    head = _HEAD.pack(size - SIZE_BYTES, _MESSAGE)
    alike = all(frames[at::size] == head[at : at + 1] * count for at in range(len(head)))
    return size if alike else 0


def int64s(first: int, count: int) -> pa.Array:
    """Return the numbers from `first` on as a column."""
    import pyarrow.compute as pc

    return pc.add(_from_zero(count), first)


def _multiples(size: int, count: int) -> array[int]:
    """Return 0, `size`, 2 * `size`, ... Arrow makes them in a fortieth of the time that range() takes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.multiply(_from_zero(count), size).cast(pa.int32())
    found = array("i")
    found.frombytes(memoryview(numbers.buffers()[1])[: found.itemsize * count])
    return found


def _from_zero(count: int) -> pa.Array:
    return _first_numbers(count.bit_length()).slice(0, count)


@cache
def _first_numbers(bits: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(range(1 << bits), pa.int64())


def column_of(frames: bytes, starts: array[int], low: int, high: int) -> pa.Array:
    """Return the frames from number `low` to before `high` as a binary column, not copied."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(starts[low : high + 1]), pa.py_buffer(frames)]
    return pa.BinaryArray.from_buffers(pa.binary(), high - low, buffers)


def big_endian(column: pa.Array, code: str = "q") -> pa.Array:
    """Return the numbers of a binary column that has one in each row, of the type `code` of `array`: "q" or "H"."""
    import pyarrow as pa

    numbers = array(code)
    if len(column):
        _, offsets, data = column.buffers()
        start = memoryview(offsets).cast("i")[column.offset]
        numbers.frombytes(memoryview(data)[start : start + numbers.itemsize * len(column)])
    if sys.byteorder == "little":
        numbers.byteswap()
    kind = pa.int64() if code == "q" else pa.uint16()
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
