"""
The counters of damage since the start of the broker: of each topic, and of all.

Storage counts here what it finds, from any thread; `/stats` shows it. A broker has one ledger, which its backend makes
(`IDamagedBackend`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class DamageCounts:
    """Numbers of messages."""

    __slots__ = ("damaged", "lost", "set_aside")

    def __init__(self) -> None:
        self.lost = 0
        """They will not be delivered."""
        self.damaged = 0
        """They were in damaged bytes: lost ones, and those that have lost their headers."""
        self.set_aside = 0
        """Lost ones whose bytes, as far as there are any, are kept in a file that was set aside."""

    def shown(self) -> dict[str, int]:
        """The counters as /stats shows them."""
        return {"lost_count": self.lost, "damaged_count": self.damaged, "set_aside_count": self.set_aside}


class DamageLedger:
    """All counters, and the names of quarantined files, also of earlier runs."""

    def __init__(self) -> None:
        self.files: list[str] = []
        """Quarantined files, by their path below the data path."""
        self.on_lost: Callable[[str, int, int, str], None] | None = None
        """
        Called in the reactor thread: a topic lost the messages from a sequence up to, not including, another, and the
        only channel that gets them; "" if all do.
        """
        self._total = DamageCounts()
        self._topics: dict[str, DamageCounts] = {}
        self._added: deque[tuple[str, int, int, int]] = deque()
        """Damage to add. Appending to it is one step, so threads may do it."""

    def add(self, topic: str, *, lost: int = 0, damaged: int = 0, set_aside: int = 0) -> None:
        """Count messages, from any thread. `topic` is empty when it cannot be told."""
        self._added.append((topic, lost, damaged, set_aside))

    def add_file(self, path: str) -> None:
        """A file was set aside. From any thread."""
        self.files.append(path)

    def add_lost(self, topic: str, first: int, end: int, channel: str = "") -> None:
        """
        Let the broker know of messages, for all channels or one, that were counted and will not be delivered. In the
        reactor thread.
        """
        if self.on_lost is not None:
            self.on_lost(topic, first, end, channel)

    # -- in the reactor thread

    def total(self) -> DamageCounts:
        """Return the sum over all topics, also deleted ones."""
        while self._added:
            topic, lost, damaged, set_aside = self._added.popleft()
            counts = [self._total]
            if topic:
                counts.append(self._topics.setdefault(topic, DamageCounts()))
            for each in counts:
                each.lost += lost
                each.damaged += damaged
                each.set_aside += set_aside
        return self._total

    def of_topic(self, topic: str) -> DamageCounts | None:
        """Return the counters of one topic; None without damage."""
        self.total()
        return self._topics.get(topic)

    def forget(self, topic: str) -> None:
        """A topic is deleted: another of its name starts at 0. The total keeps what it had."""
        self.total()
        self._topics.pop(topic, None)

    def shown(self) -> dict[str, object] | None:
        """Return the document of /stats for the whole broker; None without any damage."""
        counts = self.total().shown()
        return {**counts, "set_aside": list(self.files)} if self.files or any(counts.values()) else None
