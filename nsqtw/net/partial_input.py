"""
Memory for commands and requests that have come in part, over all connections.

Each connection alone may keep a body of the largest size waiting for its rest; two thousand of them may not. Who
keeps little, as every busy connection does between two reads, is not counted. When all together keep too much, the
connection whose part has been waiting longest goes, of those that keep more than half of what they keep on the
average: an honest client is done soon, and its part is young.
"""

# mypyc: compiled

from __future__ import annotations

from typing import Final, Protocol

SMALL_BYTES: Final = 16384
"""A part of this size is not counted."""


class Holder(Protocol):
    """A connection that has received a part."""

    def evict(self) -> None:
        """End, and keep nothing of it."""


class PartialInput:
    """At most `limit` bytes; 0 for any number."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._sizes: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """This is what it has now; less than before means that another part has begun."""
        before = self._sizes.get(holder, 0)
        if size <= SMALL_BYTES:
            if before:
                self.drop(holder)
            return
        if size < before:
            del self._sizes[holder]
        self._sizes[holder] = size
        self.total += size - before
        while 0 < self.limit < self.total:
            share = self.total // (2 * len(self._sizes))
            oldest = next(entry for entry, kept in self._sizes.items() if kept >= share)
            self.drop(oldest)
            oldest.evict()

    def drop(self, holder: Holder) -> None:
        """It has nothing any more."""
        self.total -= self._sizes.pop(holder, 0)
