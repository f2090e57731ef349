"""Sizes of the values of a column, as the big-endian numbers before them in a request body."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def size_prefixes(values: pa.Array, code: str = "i") -> pa.Array:
    """Return the size of each value, as a number of the type `code` of `array`: 4 bytes for "i", 2 for "H"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.binary_length(values).cast(pa.int32() if code == "i" else pa.uint16())
    sizes = array(code)
    width = sizes.itemsize
    sizes.frombytes(lengths.buffers()[1].slice(lengths.offset * width, len(lengths) * width))
    if sys.byteorder == "little":
        sizes.byteswap()
    prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(sizes)])
    return prefixes.cast(pa.binary())
