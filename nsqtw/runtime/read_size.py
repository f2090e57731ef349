"""Size of one read."""

from __future__ import annotations

from typing import Final

READ_BYTES: Final = 256 * 1024
"""Bytes asked for in one read: a chunk is the unit of work, so larger ones cost less a message."""


def keep_reads_on_the_heap() -> None:
    """
    Make glibc keep read buffers on its heap. It maps a block of this size anew for every read, and unmaps it, page
    faults included, until a larger block was freed once in the process. For a PUB that waits for its OK that is a third
    of its cost.
    """
    bytes(8 * READ_BYTES)
