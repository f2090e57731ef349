"""
The positions of channels with priorities, in `positions.db`.

    priority (cursor, positions)    positions: u64, little-endian:
                                    `next` of the classes high, normal and low
                                    how many messages of each wait, and the sequence up to which they are counted;
                                    these four are absent where they are to be counted anew

The table is always there, and has a row only for a channel whose classes are at different positions. An older nsqtw
does not know it and delivers from the lowest position, which repeats messages and loses none. So a position below
`next` of its cursor is one that an older nsqtw has passed. Where `next` is below all positions, an older nsqtw has
moved the channel back, or given its number to another one: the row is removed. Where it has passed a position, the
messages are counted anew.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable

from nsqtw.core.checkpoint import CursorState, SavedState
from nsqtw.core.segment import SEQUENCE_MASK

_CLASSES = 3
_NUMBERS = (_CLASSES, 2 * _CLASSES + 1)
"""How many numbers a row may have."""


class PriorityRows:
    """The rows of the table. Which cursors have one is in memory, so that others cost nothing."""

    def __init__(self) -> None:
        self._cursors: set[int] = set()

    def read(self, connection: sqlite3.Connection) -> None:
        """Find out which cursors have a row: at start, and when a transaction failed."""
        self._cursors = {number for (number,) in connection.execute("SELECT cursor FROM priority")}

    def load(self, connection: sqlite3.Connection, saved: SavedState) -> None:
        """Give cursors their positions, and remove invalid rows. In a transaction."""
        # Not by an index: where one is damaged, rows would be missing.
        connection.execute("DELETE FROM priority WHERE cursor NOT IN (SELECT id FROM cursor NOT INDEXED)")
        cursors = {(topic.name, cursor.name): cursor for topic in saved.topics for cursor in topic.cursors}
        for number, topic, channel, blob in connection.execute(
            "SELECT cursor.id, topic.name, cursor.name, positions FROM priority"
            " JOIN cursor NOT INDEXED ON cursor.id = priority.cursor JOIN topic ON topic.id = cursor.topic"
        ).fetchall():
            cursor = cursors.get((topic, channel))
            if cursor is None:
                continue
            numbers = _numbers(blob)
            if numbers is None:
                saved.invalid.append(f"TOPIC({topic}): CHANNEL({channel}): positions of its priorities are left out")
                connection.execute("DELETE FROM priority WHERE cursor = ?", (number,))
                continue
            positions = numbers[:_CLASSES]
            if cursor.next < min(positions):
                connection.execute("DELETE FROM priority WHERE cursor = ?", (number,))
                continue
            cursor.positions = [max(cursor.next, position) for position in positions]
            if cursor.next == min(positions):
                cursor.class_depths = numbers[_CLASSES:]
        self.read(connection)

    def write(self, connection: sqlite3.Connection, cursors: Iterable[tuple[int, CursorState]]) -> None:
        """Save the positions of the cursors of a checkpoint, with their numbers. In a transaction."""
        for number, cursor in cursors:
            if cursor.positions:
                self._cursors.add(number)
                numbers = [*cursor.positions, *cursor.class_depths]
                blob = struct.pack(f"<{len(numbers)}Q", *numbers)
                connection.execute("INSERT OR REPLACE INTO priority VALUES (?, ?)", (number, blob))
            elif number in self._cursors:
                self.forget(connection, number)

    def forget(self, connection: sqlite3.Connection, number: int) -> None:
        """A cursor is deleted, or its channel has no priorities any more."""
        if number in self._cursors:
            self._cursors.remove(number)
            connection.execute("DELETE FROM priority WHERE cursor = ?", (number,))


def _numbers(blob: object) -> list[int] | None:
    """Return the numbers of a row; None if they cannot be those of one."""
    if not isinstance(blob, bytes) or len(blob) not in [8 * count for count in _NUMBERS]:
        return None
    numbers = [*struct.unpack(f"<{len(blob) // 8}Q", blob)]
    return None if max(numbers) > SEQUENCE_MASK else numbers
