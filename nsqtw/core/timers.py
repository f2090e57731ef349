"""
Timers of the broker, on one heap.

`due_at` of a `Timer` is the earliest time it was scheduled for. Scheduling it for a later time costs nothing;
scheduling it for an earlier one leaves a stale heap item, which is skipped when its time comes. So a timer whose time
moves ahead continually, like that of a consumer which finishes messages long before they time out, is on the heap once.
A stale item has no reference to its timer, so a cancelled timer is freed at once. When most items are stale the heap is
rebuilt.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from mypy_extensions import mypyc_attr

_MAX_STALE = 64


# Where this is compiled (setup.py), classes of others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class Timer:
    """An object that can be scheduled on the timer queue."""

    __slots__ = ("due_at", "item")

    def __init__(self) -> None:
        self.due_at = inf
        self.item: TimerItem | None = None
        """Its item on the heap. Used by the queue only."""

    def on_timer(self, now: float) -> float | None:
        """Do what is due by `now`; return when to be called next (after `now`), or None."""
        raise NotImplementedError


class TimerItem:
    """A heap item; `due` is None once it is stale."""

    __slots__ = ("due",)

    def __init__(self, due: Timer) -> None:
        self.due: Timer | None = due


class TimerQueue:
    """
    The heap. Moments are seconds in the clock of `now`. `failed` is called while an exception of a Timer is handled.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed
        self._heap: list[tuple[float, int, TimerItem]] = []
        self._tie = count()
        self._stale_count = 0

    def schedule(self, when: float, due: Timer) -> None:
        """Have `due.on_timer` called at `when`, unless it will be called earlier anyway."""
        if when < due.due_at:
            if due.item is not None:
                self._make_stale(due.item)
            item = TimerItem(due)
            due.due_at, due.item = when, item
            heappush(self._heap, (when, next(self._tie), item))

    def cancel(self, due: Timer) -> None:
        """Never call `due.on_timer` again, even if it is scheduled later, and drop the reference to it."""
        due.due_at = 0.0  # no time is earlier
        item, due.item = due.item, None
        if item is not None:
            self._make_stale(item)

    def _make_stale(self, item: TimerItem) -> None:
        item.due = None
        self._stale_count += 1
        if self._stale_count > _MAX_STALE + len(self._heap) // 2:
            self._heap[:] = [entry for entry in self._heap if entry[2].due is not None]
            heapify(self._heap)
            self._stale_count = 0

    @property
    def next_due(self) -> float | None:
        """When `run` is next needed, or earlier."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> float | None:
        """Call all timers that are due by `now`, once each. Returns when it is next needed."""
        heap = self._heap
        fallen = []
        while heap and heap[0][0] <= now:
            item = heappop(heap)[2]
            due = item.due
            if due is None:
                self._stale_count -= 1
            else:
                due.due_at, due.item = inf, None
                fallen.append(due)
        for due in fallen:
            try:
                next_due = due.on_timer(now)
            except Exception:
                self._failed()  # a broken part must not keep the others from what is due
                continue
            if next_due is not None:
                self.schedule(next_due, due)
        return self.next_due
