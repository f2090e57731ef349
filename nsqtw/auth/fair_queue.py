"""
A fair queue for slow work: one entry of each address in rotation, however many each has. When the queue is full, the
address with the most entries loses its newest.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """At most `limit` items."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._by_address: dict[str, deque[Item]] = {}

    def add(self, address: str, item: Item) -> Item | None:
        """Let `item` wait. Returns the one that has lost its place for it, perhaps itself."""
        own = self._by_address.setdefault(address, deque())
        own.append(item)
        self._count += 1
        if self._count <= self._limit:
            return None
        busiest = max(self._by_address, key=lambda key: len(self._by_address[key]))
        if len(own) == len(self._by_address[busiest]):
            busiest = address
        return self._without(busiest, self._by_address[busiest].pop())

    def take(self) -> Item:
        """The next one. There must be one."""
        address = next(iter(self._by_address))
        items = self._by_address.pop(address)
        item = items.popleft()
        self._by_address[address] = items  # behind all others
        return self._without(address, item)

    def _without(self, address: str, item: Item) -> Item:
        self._count -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        return item
