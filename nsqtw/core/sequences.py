"""
Allocation of sequences to topics, in blocks.

Blocks are reserved durably ahead of use, so no block is handed out twice, whatever was lost in a crash.
"""

# mypyc: compiled

from __future__ import annotations

from secrets import randbelow
from typing import Final

from nsqtw.core.positions import IPositions
from nsqtw.core.segment import SEQUENCE_BITS

BLOCK_SIZE: Final = 1 << 20
RESERVED_BLOCKS: Final = 1024
_ALL_BLOCKS: Final = 1 << (SEQUENCE_BITS - BLOCK_SIZE.bit_length() + 1)


def random_block() -> int:
    """Return a block to start with where none was ever reserved."""
    return randbelow(_ALL_BLOCKS // 2) + 1


class SequenceAllocator:
    """The blocks of one broker. `positions` stores up to which one they are reserved."""

    def __init__(self, positions: IPositions) -> None:
        self._positions = positions
        self._next_block = random_block()
        self._reserved_blocks = self._next_block

    def start(self, next_block: int | None, highest_end: int) -> None:
        """
        Never hand out a block below `next_block`, nor one at or below `highest_end`, the highest end of a log, whatever
        was saved. When `next_block` is not known, start at random. BackendError when no block can be reserved.
        """
        lowest = self._next_block if next_block is None else next_block
        next_block = self._next_block = max(lowest, highest_end // BLOCK_SIZE + 1)
        self._reserve(next_block + RESERVED_BLOCKS)

    def take(self, count: int) -> int:
        """Return the first of `count` adjoining blocks, which belong to the caller from now on. BackendError."""
        if self._next_block + count > self._reserved_blocks:
            self._reserve(self._next_block + count + RESERVED_BLOCKS)
        first = self._next_block
        self._next_block += count
        return first

    def to_reserve(self) -> int | None:
        """Return the block up to which the next checkpoint reserves; None while half of the reserve is left."""
        if self._reserved_blocks - self._next_block >= RESERVED_BLOCKS // 2:
            return None
        return self._next_block + RESERVED_BLOCKS

    def reserved(self, block: int | None) -> None:
        """A checkpoint has reserved up to `block`; None: nothing."""
        self._reserved_blocks = max(self._reserved_blocks, block or 0)

    def _reserve(self, block: int) -> None:
        self._positions.reserve(block)
        self._reserved_blocks = block
