"""
Timers of the broker, on one heap.

An entry (`Timer`) knows the earliest moment it asked for in `due_at`; asking for a later one costs nothing, asking
for an earlier one leaves a stale heap item behind that is skipped when its time comes. So whoever moves its
moment forward all the time, like a consumer whose messages are finished long before they time out, is in the
heap once. A stale item refers to nobody, so an entry that is cancelled is freed at once. When most of the heap is
stale it is made anew.
"""

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
    """Somebody who can have something to do at a moment."""

    __slots__ = ("due_at", "item")

    def __init__(self) -> None:
        self.due_at = inf
        self.item: TimerItem | None = None
        """What refers to it on the heap. For the agenda only."""

    def on_timer(self, now: float) -> float | None:
        """Do what is due by `now`; return when to be called next (after `now`), or None."""
        raise NotImplementedError


class TimerItem:
    """What the heap has of `due`; None once it is stale."""

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
        """Never call `due.on_timer` again, whatever is asked for later, and keep no reference to it."""
        due.due_at = 0.0  # no moment is earlier
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
        """When `run` is next needed; it may turn out to be for nothing."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> float | None:
        """Call everybody who is due by `now`, once. Returns when it is next needed."""
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
