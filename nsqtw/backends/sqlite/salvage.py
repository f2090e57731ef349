"""
Salvage of a damaged `messages.db`: all readable rows are copied into a new one.

The index names most rows even where the table is broken, the table names most rows where the index is; so the rows are
looked for in both, from both ends, and each is fetched on its own. Where a damaged log of changes has mixed pages of
several versions of the table, a walk over it meets rows that are not found by their id; these are taken from the walk.
Rows whose numbers are damaged get those their frames tell; what two rows have is kept once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

from attrs import define, field

from nsqtw.backends.connection import connect_read_only
from nsqtw.backends.disk.salvage import WRONG_HEADERS
from nsqtw.backends.sqlite.rows import UNKNOWN_CHANNEL, Row
from nsqtw.backends.sqlite.schema import FILE, columns_of, insert_segments, migrate, open_database
from nsqtw.core.segment import Segment, only
from nsqtw.interfaces import Report
from nsqtw.names import is_valid_name

FRESH = ".new"

_HIGHEST = 1 << 53
_MAX_TRIED = 1_000_000
"""Row ids that are tried one by one where a table cannot be walked."""
_ROWS_AT_ONCE = 100
_MAX_WALKED_BYTES = 256 * 1024 * 1024
"""Of rows that only a walk reads: they are in memory."""

_ORDERS = ("ASC", "DESC")
_BY_INDEX = "SELECT id FROM segment INDEXED BY place ORDER BY topic {order}, last {order}"
_BY_TABLE = "SELECT id FROM segment NOT INDEXED ORDER BY id {order}"
_TOPICS = "SELECT id, name, end_sequence FROM topic NOT INDEXED ORDER BY id {order}"


@define
class SalvagedRow:
    """One row of the table of segments."""

    row_id: int
    topic_id: int | None
    """None: that cannot be told."""
    segment: Segment | None
    """The part that no other row has and that can be delivered; None: nothing."""
    why: str = ""
    """The kind of damage."""
    messages: tuple[int, int] | None = None
    """The first and the last sequence that are lost, if it is known."""
    channel: str = ""
    """The only channel that gets the lost messages, if it is known."""


@define
class Salvage:
    """Everything that can be read of a database."""

    connection: sqlite3.Connection
    topics: dict[int, tuple[str, int]] = field(factory=dict)
    """Name and saved end of each topic that has them."""
    nameless: set[int] = field(factory=set)
    """Topics that are being deleted."""
    invalid_topics: list[tuple[int, str]] = field(factory=list)
    """The damage of the other rows."""
    columns: str = ""
    _walked: dict[int, tuple[Any, ...]] | None = None
    """Rows that are not found by their id; None before there was one."""

    def read_topics(self) -> None:
        """Fill `topics` and the others."""
        for topic_id, name, end in _both_ways(self.connection, _TOPICS)[0].values():
            if name is None:
                self.nameless.add(topic_id)
            elif not isinstance(name, str) or not is_valid_name(name):
                self.invalid_topics.append((topic_id, "its name is damaged"))
            elif type(end) is not int or not 0 <= end < _HIGHEST:
                self.invalid_topics.append((topic_id, "its end is damaged; the rows tell it"))
                self.topics[topic_id] = (name, 0)
            else:
                self.topics[topic_id] = (name, end)

    def rows(self) -> Iterator[SalvagedRow]:
        """Every row, those that can be placed in the order of topics and sequences."""
        placed: list[tuple[int, int, int]] = []
        for row_id in sorted(self._row_ids()):
            row = self._fetch(row_id)
            if row.segment is None or row.topic_id is None:
                yield row
            else:
                placed.append((row.topic_id, row.segment.end, row_id))
        topic, above = -1, 0
        for topic_id, _, row_id in sorted(placed):
            if topic_id != topic:
                topic, above = topic_id, 0
            row = self._fetch(row_id)
            if row.segment is not None:
                end = row.segment.end
                if row.segment.first < above:
                    row = _above(row, above)
                above = max(above, end)
            yield row

    def _row_ids(self) -> set[int]:
        by_table, is_whole = _both_ways(self.connection, _BY_TABLE)
        by_index, _ = _both_ways(self.connection, _BY_INDEX)
        ids = {*by_table, *by_index}
        if not is_whole and ids and max(ids) - min(ids) < _MAX_TRIED:
            ids |= {row_id for row_id in range(min(ids), max(ids)) if row_id not in ids and self._is_there(row_id)}
        return ids

    def _is_there(self, row_id: int) -> bool:
        try:
            query = "SELECT 1 FROM segment NOT INDEXED WHERE id = ?"
            return self.connection.execute(query, (row_id,)).fetchone() is not None
        except sqlite3.DatabaseError:
            return False

    def _fetch(self, row_id: int) -> SalvagedRow:
        try:
            query, why = f"SELECT {self.columns} FROM segment WHERE id = ?", ""
            values = self.connection.execute(query, (row_id,)).fetchone()
        except sqlite3.DatabaseError as error:
            values, why = None, str(error)
        if values is None:
            values = self._by_walk(row_id)
        if values is None:
            return self._unreadable(row_id, why or "the index has a row that the table has not")
        row = Row(*values)
        why = row.fault()
        repaired = row.repaired() if why else row
        if repaired is None and why == WRONG_HEADERS:
            why = UNKNOWN_CHANNEL
        topic_id = row.topic if type(row.topic) is int and row.topic in self.topics else None
        if repaired is not None and topic_id is not None:
            return SalvagedRow(row_id, topic_id, repaired.segment(), why)
        if topic_id is None and row.topic in self.nameless:
            return SalvagedRow(row_id, None, None)
        is_valid = type(row.first) is int and type(row.last) is int and 0 <= row.first <= row.last < _HIGHEST
        lost = (row.first, row.last) if is_valid else None
        return SalvagedRow(row_id, topic_id, None, why or "it belongs to no topic", lost, row.channel)

    def _by_walk(self, row_id: int) -> tuple[Any, ...] | None:
        """Return a row that is not found by its id, if walking over the table reads it."""
        if self._walked is None:
            self._walked, room = {}, _MAX_WALKED_BYTES
            for order in _ORDERS:
                with suppress(sqlite3.DatabaseError):
                    query = f"SELECT {self.columns} FROM segment NOT INDEXED ORDER BY id {order}"
                    for row in self.connection.execute(query):
                        if room > 0 and row[0] not in self._walked and not self._is_there(row[0]):
                            self._walked[row[0]] = row
                            room -= sum(len(value) for value in row if isinstance(value, bytes))
        return self._walked.get(row_id)

    def _unreadable(self, row_id: int, why: str) -> SalvagedRow:
        position = None
        with suppress(sqlite3.DatabaseError):
            query = "SELECT topic, last FROM segment INDEXED BY place WHERE id = ?"
            position = self.connection.execute(query, (row_id,)).fetchone()
        if (
            position is None
            or type(position[0]) is not int
            or type(position[1]) is not int
            or position[0] not in self.topics
        ):
            return SalvagedRow(row_id, None, None, why)
        return SalvagedRow(row_id, position[0], None, why, (position[1], position[1]))


def salvage(connection: sqlite3.Connection) -> Salvage:
    """Look at a database."""
    result = Salvage(connection, columns=columns_of(connection))
    result.read_topics()
    return result


def rebuild(old: str, new: str, report: Report) -> None:
    """
    Write all that can be read of the database at `old` into one at `new`, which does not exist, and report what
    cannot. It is on stable storage afterwards. sqlite3.Error.
    """
    with closing(connect_read_only(old)) as source, closing(open_database(new)) as target:
        migrate(target)
        result = salvage(source)
        for topic_id, why in result.invalid_topics:
            report(result.topics.get(topic_id, ("", 0))[0], f"{FILE} topic {topic_id}", 0, -1, why)
        target.execute("PRAGMA synchronous = FULL")
        ends = {topic_id: end for topic_id, (_, end) in result.topics.items()}
        sizes = dict.fromkeys(result.topics, 0)
        target.execute("BEGIN")
        for number, row in enumerate(result.rows()):
            if row.segment is not None and row.topic_id is not None:
                insert_segments(target, row.topic_id, [row.segment])
                ends[row.topic_id] = max(ends[row.topic_id], row.segment.end)
                sizes[row.topic_id] += len(row.segment.frames)
            elif row.why:
                name = result.topics[row.topic_id][0] if row.topic_id is not None else ""
                report(name, f"{FILE} segment {row.row_id}", *(row.messages or (0, -1)), row.why)
            if number % _ROWS_AT_ONCE == 0:
                target.execute("COMMIT")
                target.execute("BEGIN")
        for topic_id, (name, _) in result.topics.items():
            target.execute("INSERT INTO topic VALUES (?, ?, ?, ?)", (topic_id, name, ends[topic_id], sizes[topic_id]))
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def quarantine_file(path: str, report: Report) -> None:
    """
    Let what can be read of the database at `path` be all there is, and keep the damaged one beside it under another
    name. Complete before the first file is touched. sqlite3.Error, OSError.
    """
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + FRESH + suffix)
    rebuild(path, path + FRESH, report)
    number = 1
    while os.path.exists(f"{path}.damaged.{number}"):
        number += 1
    target = f"{path}.damaged.{number}"
    # The database goes first: without its log of changes it would lack what is in there.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(path + suffix, target + suffix)
    os.rename(path + FRESH, path)
    report(
        "", FILE, 0, -1, f"the database was damaged; all that could be read is in a new one, the old one is {target}"
    )


def finish_quarantine(path: str) -> None:
    """
    After `quarantine_file` was interrupted: the fresh database is whole once the damaged one has another name. A log of
    changes that is still there is the old one's. OSError.
    """
    if os.path.exists(path + FRESH) and not os.path.exists(path):
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.rename(path + suffix, f"{path}.damaged{suffix}")
        os.rename(path + FRESH, path)


def _both_ways(connection: sqlite3.Connection, query: str) -> tuple[dict[int, Any], bool]:
    """
    Query from the front, and from the back if that fails midway. Returns rows by their first column, and whether these
    are all.
    """
    rows: dict[int, Any] = {}
    for order in _ORDERS:
        try:
            for row in connection.execute(query.format(order=order)):
                if type(row[0]) is int:
                    rows[row[0]] = row
            return rows, order == "ASC"
        except sqlite3.DatabaseError:
            continue
    return rows, False


def _above(row: SalvagedRow, above: int) -> SalvagedRow:
    """Without what rows before it have."""
    segment = row.segment
    assert segment is not None
    rest = only(segment, range(above, segment.end))
    why = "another row has them too"
    if not rest:
        return SalvagedRow(row.row_id, row.topic_id, None, why)
    return SalvagedRow(row.row_id, row.topic_id, rest[0], why)
