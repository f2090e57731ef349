"""
Messages of one size that are still the bytes of their publish, each behind its size:

    buffer   ... | size  4 | message  size | size  4 | message  size | ...
                 ^ start

Theory of operation. Thousands of messages as objects need memory beyond the CPU's caches, which Python returns to the
system and requests anew with each publish. So a large publish stays as it is until it is encoded, and then becomes
objects for one segment at a time.

Performance: called once per large publish, and per run of its messages.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

_SIZE_BYTES: Final = 4
RUN: Final = 256
"""Messages of one size that are taken out of a buffer by one format, which has 32 bytes for each."""
_KNOWN_RUNS: Final = 32


class PackedMessages:
    """`count` messages of `size` bytes in `buffer`, the first one with its size from `start` on."""

    __slots__ = ("_buffer", "_count", "_start", "size")

    def __init__(self, buffer: bytes, start: int, count: int, size: int) -> None:
        self._buffer = buffer
        self._start = start
        self._count = count
        self.size = size

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.lists(RUN))

    def lists(self, most: int) -> Iterator[list[bytes]]:
        stride = _SIZE_BYTES + self.size
        start = self._start
        for left in range(self._count, 0, -most):
            messages: list[bytes] = []
            end = start + min(left, most) * stride
            while start < end:
                run = min(RUN, (end - start) // stride)
                messages += run_of(run, self.size).unpack_from(self._buffer, start)
                start += run * stride
            yield messages


@lru_cache(_KNOWN_RUNS)
def run_of(count: int, size: int) -> struct.Struct:
    """Return a format that takes `count` messages of `size` bytes out of a buffer."""
    return struct.Struct(f"{_SIZE_BYTES}x{size}s" * count)


def have_one_size(buffer: bytes, start: int, count: int, stride: int) -> bool:
    """Return whether the sizes at each `stride` are the same. Strided slices compare them: 4 calls, not `count`."""
    end = start + count * stride
    for index in range(_SIZE_BYTES):
        if buffer[start + index : end : stride] != buffer[start + index : start + index + 1] * count:
            return False
    return True
