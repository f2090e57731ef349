"""Named points in time at which a policy acts: the event loop needs one timer for all of them."""

from __future__ import annotations

from collections.abc import Hashable


class Timers:
    """Due times by key, in seconds of the caller's clock. `has_changed` tells the edge to set its timer again."""

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}
        self.has_changed = False

    def set(self, key: Hashable, at: float) -> None:
        """Make `key` due at `at`, in the place of an earlier time for it."""
        self._due[key] = at
        self.has_changed = True

    def hasten(self, key: Hashable, at: float) -> None:
        """Make `key` due at `at`, unless it is due earlier."""
        if self._due.get(key, at) >= at:
            self.set(key, at)

    def cancel(self, key: Hashable) -> None:
        if self._due.pop(key, None) is not None:
            self.has_changed = True

    def clear(self) -> None:
        """Forget all."""
        self._due.clear()
        self.has_changed = True

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due

    @property
    def next(self) -> float | None:
        """The earliest due time."""
        return min(self._due.values(), default=None)

    def pop_due(self, now: float) -> list[Hashable]:
        """Remove and return the keys that are due, in the order of their times."""
        due = sorted((at, number, key) for number, (key, at) in enumerate(self._due.items()) if at <= now)
        for _, _, key in due:
            del self._due[key]
        self.has_changed = self.has_changed or bool(due)
        return [key for _, _, key in due]
