"""Entries: an Arrow column of messages in the form of a request body, made without a step for each row.

An entry is a message in the form of ``POST /mpub?binary=true``. An Arrow column of entries has them in one buffer, one
after the other, and their offsets in an array:

    data     | size  4 | message  size | size  4 | message  size | ...
    offsets  0         .               8 + sizes ...

With headers, the size and the headers of each message are before its size.

So a request body is a slice of `data`. Sizes are big-endian.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_nsq.sink.sizes import size_prefixes

if TYPE_CHECKING:
    import pyarrow as pa

SIZE_BYTES = 4
#: Arrow's offsets have 32 bits: the values that are joined at a time have well below 2 GiB.
_MOST_JOINED_BYTES = 1 << 30
_FEW_ROWS = 1000


class Entries:
    """Consecutive entries, with headers or without. `offsets` has one more number than there are entries."""

    __slots__ = ("data", "has_headers", "offsets")

    def __init__(self, data: memoryview, offsets: memoryview[int], *, has_headers: bool = False) -> None:
        self.data = data
        self.offsets = offsets
        self.has_headers = has_headers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def cut(self, start: int, stop: int) -> memoryview:
        """Return the bytes of the entries from `start` to before `stop`, not copied."""
        return self.data[self.offsets[start] : self.offsets[stop]]

    def part(self, start: int, stop: int) -> Entries:
        """Return the entries from `start` to before `stop`, not copied."""
        return Entries(self.data, self.offsets[start : stop + 1], has_headers=self.has_headers)

    def bytes_between(self, start: int, stop: int) -> int:
        """Return the number of bytes from `start` to before `stop`."""
        return int(self.offsets[stop] - self.offsets[start])

    def fit(self, start: int, most_bytes: int) -> int:
        """Return the end of the entries from `start` on that have at most `most_bytes`; `start` if none fits."""
        return bisect_right(self.offsets, self.offsets[start] + most_bytes, lo=start) - 1


def entries_of(values: pa.Array, headers: pa.Array | None = None) -> Iterator[Entries]:
    """Yield the entries of a column of strings or binaries without nulls, each of at most 1 MiB, in few parts.

    `headers` are the encoded headers of each message, for requests with headers.
    """
    columns = [values] if headers is None else [headers, values]
    total = sum(_bytes_of(column) for column in columns)
    step = len(values) if total < _MOST_JOINED_BYTES else _FEW_ROWS
    for start in range(0, len(values), max(1, step)):
        yield _encode([column.slice(start, step) for column in columns])


def _bytes_of(column: pa.Array) -> int:
    import pyarrow.compute as pc

    return (pc.sum(pc.binary_length(column)).as_py() or 0) + SIZE_BYTES * len(column)


def _encode(columns: list[pa.Array]) -> Entries:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [part for column in columns for part in (size_prefixes(column), column.cast(pa.binary()))]
    joined = pc.binary_join_element_wise(*parts, b"")
    _, offsets, data = joined.buffers()
    return Entries(
        memoryview(data).cast("B"), memoryview(offsets).cast("i")[: len(joined) + 1], has_headers=len(columns) > 1
    )
