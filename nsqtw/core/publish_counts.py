"""
Counts of the messages that a client published, by topic.

Performance: called once per publish command.
"""

# mypyc: compiled

from __future__ import annotations


class PublishCounts:
    """Messages by topic. Most clients publish to one topic, which is counted beside the others."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._topic = ""
        self._count = 0

    def add(self, topic: str, count: int) -> None:
        """So many more to a topic."""
        if topic is not self._topic:
            self._put_by()
            self._topic = topic
        self._count += count

    def by_topic(self) -> dict[str, int]:
        """The counts by topic. Read only."""
        self._put_by()
        return self._counts

    def _put_by(self) -> None:
        if self._count:
            self._counts[self._topic] = self._counts.get(self._topic, 0) + self._count
            self._count = 0
