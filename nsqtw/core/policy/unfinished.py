"""
Unfinished messages of a channel that is to deliver in an order, found in parts.

Theory of operation. There may be a hundred thousand of them, and each is looked up in the log. So they are collected
and taken in several turns, in which the channel delivers nothing. All that can become of them meanwhile is that they
end; the others are taken as they were found. First come those in flight, then those that were delivered before, then
those that were set aside, each kind in the order of the log. A heap for each kind makes no turn longer than others.

Performance: a step for each message, when a channel starts to deliver in an order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from nsqtw.core.checkpoint import PendingRow

PAGE_COST: Final = 256
"""A page of rows, in messages that are looked up in the log."""
_IN_FLIGHT, _DELIVERED, _NEW = range(3)


class UnfinishedMessages:
    """
    The messages `in_flight`, and those that have rows in `pages` without the ones that are `withheld`. `pages` may have
    rows of messages in flight, and of those that end.
    """

    def __init__(
        self, in_flight: Iterable[int], pages: Iterator[list[PendingRow]], withheld: Collection[int] = ()
    ) -> None:
        self._heaps: tuple[list[int], ...] = ([*in_flight], [], [])
        heapify(self._heaps[_IN_FLIGHT])
        self._pages: Iterator[list[PendingRow]] | None = pages
        self._gone = {*withheld}
        """Messages that are not to be taken: withheld, taken before, or finished."""

    def end(self, sequences: Iterable[int]) -> None:
        """Messages are finished."""
        self._gone.update(sequences)

    @property
    def is_collected(self) -> bool:
        """Whether all pages are read, and messages can be taken."""
        return self._pages is None

    def collect(self) -> None:
        """Read a page. BackendError, and this object is of no use any more."""
        assert self._pages is not None, "it is collected"
        page = next(self._pages, None)
        if page is None:
            self._pages = None
            return
        for row in page:
            heappush(self._heaps[_DELIVERED if row.attempts else _NEW], row.sequence)

    def take(self) -> int | None:
        """Return the next message; None when all are taken."""
        for heap in self._heaps:
            while heap:
                sequence = heappop(heap)
                if sequence not in self._gone:
                    self._gone.add(sequence)
                    return sequence
        return None
