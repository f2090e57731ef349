"""
The table of publishers' ids in `positions.db`.

Theory of operation. The hashes of new ids are random, so each new row changes a page of its own; rows are inserted in
the order of their hashes, which reads and writes a page once for several of them. Nothing refers to the age of rows: an
index would cost as much again for each insert. Instead each save goes on through the table where the one before it
stopped, over a few rows for each that it inserts, and removes those that are too old: neighbours, which share pages. So
the table has at most about a third more rows than there are ids in the window.

A deleted topic's rows are removed in the same way. Its number is given to no other topic (`ids`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nsqtw.core.checkpoint import PublisherId
from nsqtw.core.segment import SEQUENCE_MASK

_PUT = "INSERT OR REPLACE INTO dedupe VALUES (?, ?, ?, ?)"
_FIND = "SELECT hash, published_ms, sequence FROM dedupe WHERE topic = ? AND hash = ?"
_FIND_SOME = "SELECT hash, published_ms, sequence FROM dedupe WHERE topic = ? AND hash IN ({marks})"
_ALL = "SELECT hash, published_ms, sequence FROM dedupe WHERE topic = ?"
_FOUND_AT_ONCE = 500
"""Parameters of one statement; SQLite allows 999 at least."""
_NEXT_TOPIC = "SELECT topic FROM dedupe WHERE topic >= ? LIMIT 1"
_PORTION_END = "SELECT hash FROM dedupe WHERE topic = ? AND hash > ? ORDER BY hash LIMIT 1 OFFSET ?"
_REMOVE = "DELETE FROM dedupe WHERE topic = ? AND hash > ? AND published_ms < ?"

_SWEPT_ROWS = 2000
"""Rows that a save looks at, at least."""
_SWEPT_FOR_EACH = 4
"""Rows that it looks at for each that it inserts."""
_SWEPT_TOPICS = 20
"""Topics at most."""
_EVERY_TIME = (1 << 63) - 1

Row = tuple[int, bytes, int, int]
"""Number of the topic, hash, published_ms, sequence."""


def rows_of(number: int, ids: Iterable[PublisherId]) -> list[Row]:
    return [(number, one.hash, one.published_ms, one.sequence) for one in ids]


def put(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Insert rows, or replace those with the same hash."""
    connection.executemany(_PUT, sorted(rows))


def find(connection: sqlite3.Connection, number: int, hashes: Sequence[bytes]) -> list[PublisherId]:
    """Return the rows with these hashes. Those with values that nsqtw never wrote are left out."""
    found: list[tuple[Any, ...]] = []
    if len(hashes) == 1:
        found = connection.execute(_FIND, (number, *hashes)).fetchall()
    else:
        for start in range(0, len(hashes), _FOUND_AT_ONCE):
            some = hashes[start : start + _FOUND_AT_ONCE]
            statement = _FIND_SOME.format(marks=",".join("?" * len(some)))
            found += connection.execute(statement, (number, *some)).fetchall()
    return [PublisherId(*row) for row in found if _is_valid(*row[1:])]


def find_all(connection: sqlite3.Connection, number: int) -> list[PublisherId]:
    """Return the rows of a topic, without those that `find` leaves out."""
    return [PublisherId(*row) for row in connection.execute(_ALL, (number,)) if _is_valid(*row[1:])]


def forget(connection: sqlite3.Connection, number: int, start: int) -> None:
    """Remove the rows of a topic's messages from the sequence `start` on."""
    connection.execute("DELETE FROM dedupe WHERE topic = ? AND sequence >= ?", (number, start))


def highest_topic(connection: sqlite3.Connection) -> int:
    """Return the highest number of a topic that has rows."""
    highest: int = connection.execute("SELECT ifnull(max(topic), 0) FROM dedupe").fetchone()[0]
    return highest


class Sweep:
    """The place in the table from where the next save removes rows that are too old."""

    def __init__(self) -> None:
        self._number = 0
        self._after = b""

    def go_on(
        self, connection: sqlite3.Connection, inserted_count: int, windows_ms: Mapping[int, int | None], now_ms: int
    ) -> bool:
        """
        Go on through the table. `windows_ms` has the window of each topic by its number, None where it is not known; a
        topic that is not there is deleted. Returns whether the table has rows.
        """
        room = _SWEPT_ROWS + _SWEPT_FOR_EACH * inserted_count
        for _ in range(_SWEPT_TOPICS):
            row = connection.execute(_NEXT_TOPIC, (self._number,)).fetchone()
            if row is None:
                was_at_start, self._number, self._after = self._number == 0, 0, b""
                return not was_at_start
            if row[0] != self._number:
                self._number, self._after = row[0], b""
            window_ms = windows_ms.get(self._number, 0)
            bounds: tuple[Any, ...] = (self._number, self._after)
            end = connection.execute(_PORTION_END, (*bounds, room)).fetchone()
            if window_ms is not None:
                before_ms = now_ms - window_ms if window_ms else _EVERY_TIME
                if end is None:
                    connection.execute(_REMOVE, (*bounds, before_ms))
                else:
                    connection.execute(f"{_REMOVE} AND hash <= ?", (*bounds, before_ms, *end))
            if end is not None:
                self._after = end[0]
                return True
            self._number, self._after = self._number + 1, b""
        return True


def _is_valid(published_ms: Any, sequence: Any) -> bool:
    return type(published_ms) is int and type(sequence) is int and 0 <= sequence <= SEQUENCE_MASK
