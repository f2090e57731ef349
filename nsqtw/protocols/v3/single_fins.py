"""
FINs of one message each, as a client sends them that answers each message by itself.

    0               12               20       24
    header of FIN   id               count
                    u64              u32, 1

Many of them are made or compared at once: they differ in the lowest two bytes of the id.

Performance: called once per run of FINs.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from nsqtw.interfaces import Range

FIN_BYTES: Final = 24
"""A FIN of one message."""
_HIGH_AT: Final = 18
_LOW_AT: Final = 19
"""The places of the lowest two bytes of the id."""
_U16S: Final = struct.pack(">65536H", *range(0x10000))
"""All numbers of two bytes, in order."""
_pack_range: Final = struct.Struct(">QI").pack


def single_fins(head: bytes, ranges: Sequence[Range], count: int) -> bytearray:
    """
    Return the FINs with this header for each of the `count` messages of these ranges; nothing if they are not so many,
    or if their numbers differ in more than the lowest two bytes.
    """
    first, size = ranges[0]
    low = first & 0xFFFF
    if len(ranges) == 1:
        lowest = _U16S[low * 2 : (low + size) * 2]
    else:
        base = first - low
        lowest = b"".join([_U16S[(first ^ base) * 2 : ((first ^ base) + size) * 2] for first, size in ranges])
    if len(lowest) != 2 * count:
        return bytearray()
    fins = bytearray(head + _pack_range(first, 1)) * count
    fins[_HIGH_AT::FIN_BYTES] = lowest[::2]
    fins[_LOW_AT::FIN_BYTES] = lowest[1::2]
    return fins


def equal_fins(buffer: bytes, offset: int, wanted: bytearray) -> int:
    """Return how many FINs from `offset` on are as in `wanted`, whose first one is there, and not all."""
    equal, unequal = 1, len(wanted) // FIN_BYTES
    while unequal - equal > 1:
        middle = (equal + unequal) // 2
        start, stop = equal * FIN_BYTES, middle * FIN_BYTES
        if buffer[offset + start : offset + stop] == wanted[start:stop]:
            equal = middle
        else:
            unequal = middle
    return equal
