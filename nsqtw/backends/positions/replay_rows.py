"""
How far the messages for other channels are counted in the replay of a channel, in `positions.db`.

    replay (cursor, counted_to, replays)    from `counted_to` up to `replays`, which is that of the cursor, messages for
                                            other channels are counted as unread

The table is always there, and has a row only for a channel that was moved and whose log is not looked through yet. An
older nsqtw does not know it: the depth is too high until the replay ends. A row whose `replays` is not that of its
cursor is of an earlier replay, and is removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from nsqtw.core.checkpoint import CursorState, SavedState

_INVALID = """
DELETE FROM replay WHERE typeof(counted_to) != 'integer' OR counted_to < 0 OR counted_to >= replays OR NOT EXISTS (
    SELECT 1 FROM cursor NOT INDEXED WHERE cursor.id = replay.cursor AND cursor.replays = replay.replays
)
"""
_ROWS = """
SELECT topic.name, cursor.name, counted_to FROM replay
JOIN cursor NOT INDEXED ON cursor.id = replay.cursor JOIN topic ON topic.id = cursor.topic
"""


class ReplayRows:
    """The rows of the table. Which cursors have one is in memory, so that others cost nothing."""

    def __init__(self) -> None:
        self._cursors: set[int] = set()

    def read(self, connection: sqlite3.Connection) -> None:
        """Find out which cursors have a row: at start, and when a transaction failed."""
        self._cursors = {number for (number,) in connection.execute("SELECT cursor FROM replay")}

    def load(self, connection: sqlite3.Connection, saved: SavedState) -> None:
        """Tell cursors how far they are counted, and remove invalid rows. In a transaction."""
        connection.execute(_INVALID)
        self.read(connection)
        if not self._cursors:
            return
        cursors = {(topic.name, cursor.name): cursor for topic in saved.topics for cursor in topic.cursors}
        for topic, channel, counted_to in connection.execute(_ROWS):
            if (topic, channel) in cursors:
                cursors[topic, channel].counted_to = counted_to

    def write(self, connection: sqlite3.Connection, cursors: Iterable[tuple[int, CursorState]]) -> None:
        """Save it of the cursors of a checkpoint, with their numbers. In a transaction."""
        for number, cursor in cursors:
            if cursor.counted_to is not None:
                self._cursors.add(number)
                row = (number, cursor.counted_to, cursor.replays)
                connection.execute("INSERT OR REPLACE INTO replay VALUES (?, ?, ?)", row)
            elif number in self._cursors:
                self.forget(connection, number)

    def forget(self, connection: sqlite3.Connection, number: int) -> None:
        """A cursor is deleted, or all is counted."""
        if number in self._cursors:
            self._cursors.remove(number)
            connection.execute("DELETE FROM replay WHERE cursor = ?", (number,))
