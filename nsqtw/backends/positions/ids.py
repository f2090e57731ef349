"""The row ids of `positions.db`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from nsqtw.backends.positions.publisher_ids import highest_topic


class Ids:
    """The row ids of topics and cursors, so that saving needs no look-up. New ones are given out here."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._cursors: dict[str, dict[str, int]] = {}
        self._next_topic = self._next_cursor = 1

    def read(self, connection: sqlite3.Connection) -> None:
        """Take them from the database: at start, and when a transaction failed."""
        # Not by an index: where one is damaged, rows would be missing.
        topics = dict(connection.execute("SELECT id, name FROM topic NOT INDEXED").fetchall())
        cursors: dict[str, dict[str, int]] = {name: {} for name in topics.values()}
        for number, topic, channel in connection.execute("SELECT id, topic, name FROM cursor NOT INDEXED"):
            cursors[topics[topic]][channel] = number
        self._topics = {name: number for number, name in topics.items()}
        self._cursors = cursors  # all at once: another thread may look a cursor up
        highest: int = connection.execute("SELECT ifnull(max(id), 0) FROM topic").fetchone()[0]
        # The publishers' ids of a deleted topic are removed later: its number is given to no other topic.
        self._next_topic = max(highest, highest_topic(connection)) + 1
        self._next_cursor = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM cursor").fetchone()[0]

    def of_topic(self, topic: str) -> int:
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = self._next_topic
            self._cursors[topic] = {}
            self._next_topic += 1
        return number

    def known_topic(self, topic: str) -> int:
        """-1 when there is none. From any thread."""
        return self._topics.get(topic, -1)

    def topics(self) -> Iterable[int]:
        """All numbers of topics."""
        return self._topics.values()

    def of_cursor(self, topic: str, channel: str) -> int:
        cursors = self._cursors[topic]
        number = cursors.get(channel)
        if number is None:
            number = cursors[channel] = self._next_cursor
            self._next_cursor += 1
        return number

    def known_cursor(self, topic: str, channel: str) -> int:
        """-1 when there is none. From any thread."""
        return self._cursors.get(topic, {}).get(channel, -1)

    def channels(self, topic: str) -> list[str]:
        return list(self._cursors.get(topic, ()))

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._cursors.pop(topic, None)

    def forget_cursor(self, topic: str, channel: str) -> int | None:
        return self._cursors.get(topic, {}).pop(channel, None)
