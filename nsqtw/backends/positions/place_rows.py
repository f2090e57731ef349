"""
Details of pending messages beyond their pending rows, in `positions.db`.

    place (cursor, sequence, reason, detail, due_ms)

    reason    why the message is held, on its way to the dead-letter topic, with what its consumer said, and when it is
              delivered again if it turns out to be a dead letter itself (`core.checkpoint.HeldRow`)
    ""        the message is not held; its last delivery is the last one that is allowed, and has not failed
              (`CursorState.interrupted`)

The table is always there, and has rows only for channels with dead letters. While a message is held, the database has
version HELD: an older nsqtw, which would take it for a ready one and drop it where a bound says so, says that it does
not know this version. An older nsqtw makes dead letters of the other messages here and loses none, so that they do not
raise the version. What it leaves in the table allows a message one more delivery at most.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from nsqtw.backends.positions.rows import LATEST_MS
from nsqtw.core.checkpoint import CursorState, HeldRow, SavedState
from nsqtw.core.policy.letter import REASONS

_REASONS = ", ".join(f"'{reason}'" for reason in ("", *REASONS))
_INVALID = f"""
DELETE FROM place WHERE reason NOT IN ({_REASONS}) OR typeof(detail) != 'text'
OR typeof(due_ms) != 'integer' OR due_ms NOT BETWEEN 0 AND {LATEST_MS}
"""
_WITHOUT_PENDING = """
DELETE FROM place WHERE NOT EXISTS (
    SELECT 1 FROM held WHERE held.cursor = place.cursor AND held.sequence = place.sequence AND held.due_ms = 0
)
"""
_HELD = """
SELECT place.sequence, held.attempts, place.reason, place.detail, place.due_ms
FROM place CROSS JOIN held ON held.cursor = place.cursor AND held.sequence = place.sequence
WHERE place.cursor = ? AND place.reason != '' ORDER BY place.sequence
"""
_DELETE = "DELETE FROM place WHERE cursor = ? AND sequence = ?"
_PUT = "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?, ?)"


class PlaceRows:
    """The rows of the table. Which there are is in memory, so that cursors without any cost nothing."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, bool]] = {}
        """By cursor and sequence whether the message is held."""
        self._held_count = 0

    @property
    def has_held(self) -> bool:
        return self._held_count > 0

    def read(self, connection: sqlite3.Connection) -> None:
        """Find out which rows there are: at start, and when a transaction failed."""
        self._rows, self._held_count = {}, 0
        for number, sequence, reason in connection.execute("SELECT cursor, sequence, reason FROM place"):
            self._rows.setdefault(number, {})[sequence] = bool(reason)
            self._held_count += bool(reason)

    def load(self, connection: sqlite3.Connection, saved: SavedState) -> None:
        """Tell cursors what was interrupted, and remove invalid rows. In a transaction."""
        count = connection.execute(_INVALID).rowcount
        if count:
            saved.invalid.append(f"what was saved of {count} held messages makes no sense: they are ready")
        connection.execute(_WITHOUT_PENDING)
        self.read(connection)
        if not self._rows:
            return
        cursors = {(topic.name, cursor.name): cursor for topic in saved.topics for cursor in topic.cursors}
        for number, topic, channel in connection.execute(
            "SELECT cursor.id, topic.name, cursor.name FROM cursor JOIN topic ON topic.id = cursor.topic"
        ):
            rows = self._rows.get(number)
            if rows and (topic, channel) in cursors:
                interrupted = [sequence for sequence, is_held in rows.items() if not is_held]
                cursors[topic, channel].interrupted = interrupted

    def held(self, connection: sqlite3.Connection, number: int) -> list[HeldRow]:
        """Return the held messages of a cursor."""
        return [HeldRow(*row) for row in connection.execute(_HELD, (number,))] if self._rows.get(number) else []

    def write(self, connection: sqlite3.Connection, cursors: Iterable[tuple[int, CursorState]]) -> None:
        """Save what changed of the cursors of a checkpoint, with their numbers. In a transaction."""
        for number, cursor in cursors:
            rows = self._rows.get(number)
            if rows is not None:
                interrupted = {*cursor.interrupted}
                changed = {row.sequence for row in cursor.pending}.union(cursor.dropped_rows)
                start = 0 if cursor.emptied else cursor.forgotten_from
                self._remove(
                    connection,
                    number,
                    [
                        sequence
                        for sequence, is_held in rows.items()
                        if (sequence in changed if is_held else sequence not in interrupted)
                        or (start is not None and sequence >= start)
                    ],
                )
            added = [(number, row.sequence, row.reason, row.detail, row.due_ms) for row in cursor.held]
            known = self._rows.get(number, {})
            added += [(number, sequence, "", "", 0) for sequence in cursor.interrupted if sequence not in known]
            if added:
                connection.executemany(_PUT, added)
                self._rows.setdefault(number, {}).update({row[1]: bool(row[2]) for row in added})
                self._held_count += len(cursor.held)

    def forget(self, connection: sqlite3.Connection, number: int, start: int = 0) -> None:
        """A cursor is deleted, or its messages from a sequence on are."""
        self._remove(connection, number, [one for one in self._rows.get(number, ()) if one >= start])

    def _remove(self, connection: sqlite3.Connection, number: int, sequences: list[int]) -> None:
        if sequences:
            rows = self._rows[number]
            connection.executemany(_DELETE, [(number, sequence) for sequence in sequences])
            self._held_count -= sum([rows.pop(sequence) for sequence in sequences])
            if not rows:
                del self._rows[number]
