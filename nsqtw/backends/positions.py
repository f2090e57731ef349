"""
Where every cursor stands: `positions.db`, an SQLite database under the data path.

It is written once a second or so, by the writer thread, one transaction for all topics: so the saved cut is
consistent, and a crash leaves the one before. A saved cut need not survive a power failure (synchronous NORMAL),
unless it says so: an older cut means repeats, no loss. Reserved blocks of sequences must survive (FULL): a sequence
is never used twice.

A database that is damaged is set aside as `positions.db.damaged.<n>` and a fresh one takes its place; the caller
is told by `Saved.lost`.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import groupby
from threading import Lock

from zope.interface import implementer

from nsqtw.backends.files import backend_error, create_private
from nsqtw.backends.positions_rows import check_broker, cursor_row, numbers, read_topics, topic_row
from nsqtw.core.cut import Cut, Saved, SavedTopic
from nsqtw.errors import BackendError, BackendFull
from nsqtw.interfaces import IPositions

VERSION = 2
"""The version of the schema below: raise it with every change, and keep reading the versions before."""

_SCHEMA = """
CREATE TABLE broker (
    version INTEGER NOT NULL,
    next_block INTEGER,                 -- blocks of sequences under this one are taken
    clean_stop INTEGER NOT NULL         -- 1: the last process saved everything before it ended
);
CREATE TABLE topic (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL,
    released INTEGER NOT NULL,
    released_total INTEGER NOT NULL,
    end_sequence INTEGER NOT NULL,
    put_total INTEGER NOT NULL,
    dropped BLOB NOT NULL,              -- pairs of u64, little-endian: first sequence, one past the last
    waiting BLOB NOT NULL,              -- triples of u64: first sequence, count, delay in ms
    durability TEXT NOT NULL DEFAULT '' -- the class it was given while a broker ran; since version 2
);
CREATE TABLE cursor (
    id INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    name TEXT NOT NULL,
    paused INTEGER NOT NULL,
    next INTEGER NOT NULL,
    taken_total INTEGER NOT NULL,
    first_deliveries BLOB NOT NULL,     -- u64 each
    UNIQUE (topic, name)
);
CREATE TABLE held (
    cursor INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (cursor, sequence)
) WITHOUT ROWID;
"""

_PUT_TOPIC = """
INSERT INTO topic VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused, released = excluded.released, released_total = excluded.released_total,
    end_sequence = excluded.end_sequence, put_total = excluded.put_total,
    dropped = excluded.dropped, waiting = excluded.waiting, durability = excluded.durability
"""
_MIGRATIONS = {1: "ALTER TABLE topic ADD COLUMN durability TEXT NOT NULL DEFAULT ''"}
"""What leads from a version to the next one."""
_PUT_CURSOR = """
INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused, next = excluded.next, taken_total = excluded.taken_total,
    first_deliveries = excluded.first_deliveries
"""

_SHIFT_DUE = "UPDATE held SET due_ms = max(1, due_ms + ?) WHERE due_ms > 0"

_HELD_PAGE = """
SELECT sequence FROM held WHERE cursor = ? AND sequence > ? AND sequence < ? ORDER BY sequence LIMIT ?
"""

_DAMAGE_CODES = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_ERROR,
)
"""What opening and reading fail with when the file is not what we wrote. ERROR: a table or column is missing."""

_FRESH = ".new"
_PAGE_ROWS = 4096
_BUSY_SECONDS = 1.0


@implementer(IPositions)
class Positions:
    """The database at `path`. It may be used from several threads; `load` comes first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._ids = _Ids()

    def load(self) -> Saved:
        """IPositions API. BackendError when there is no way to have a database at this path."""
        with self._lock:
            try:
                lost = _finish_setting_aside(self._path)
                try:
                    saved = self._open(self._path)
                except _DamagedError as damage:
                    aside = self._set_aside()
                    saved = self._open(self._path)
                    saved.lost_how = f"{damage}; it is set aside as {aside}"
                    lost = True
            except OSError as error:
                self._disconnect()
                raise backend_error(error, str(error.filename)) from error
            except sqlite3.Error as error:
                self._disconnect()
                raise _backend_error(error, self._path) from error
            except BackendError:
                self._disconnect()
                raise
            saved.lost = lost
            return saved

    def reserve(self, next_block: int) -> None:
        """IPositions API"""
        with self._lock, self._transaction(durable=True) as connection:
            # At least one more each time: SQLite writes and syncs nothing for a row that stays as it is, and what was
            # saved before is to be safe after this.
            connection.execute("UPDATE broker SET next_block = max(ifnull(next_block + 1, 0), ?)", (next_block,))

    def save(self, cut: Cut) -> None:
        """IPositions API"""
        with self._lock, self._transaction(durable=cut.durable) as connection:
            for topic in cut.deleted_topics:
                self._delete_topic(connection, topic)
            for topic, channel in cut.deleted_channels:
                self._delete_channel(connection, topic, channel)
            if cut.due_shift_ms:
                connection.execute(_SHIFT_DUE, (cut.due_shift_ms,))
            self._put(connection, cut.topics)

    def unfinished(self, topic: str) -> tuple[int, Iterable[int]] | None:
        """IPositions API. The iterable is lazy and may raise BackendError too."""
        with self._lock, self._reading() as connection:
            row = connection.execute("SELECT id, released FROM topic WHERE name = ?", (topic,)).fetchone()
            if row is None:
                return None
            number, released = row
            cursors = connection.execute(
                "SELECT id, next, first_deliveries FROM cursor WHERE topic = ?", (number,)
            ).fetchall()
        below = min((following for _, following, _ in cursors), default=released)
        first_deliveries = sorted(
            {sequence for _, _, blob in cursors for sequence in numbers(blob) if sequence < below}
        )
        held = [self._held(number, below) for number, _, _ in cursors]
        return below, (sequence for sequence, _ in groupby(merge(first_deliveries, *held)))

    def close(self, clean: bool) -> None:
        """IPositions API. BackendError when the note of a clean stop cannot be written; closed it is all the same."""
        with self._lock:
            try:
                if clean and self._connection is not None:
                    with self._transaction(durable=True) as connection:
                        connection.execute("UPDATE broker SET clean_stop = 1")
            finally:
                self._disconnect()

    def _open(self, path: str) -> Saved:
        """Connect, make the tables if there are none, and read all. sqlite3.Error, _DamagedError."""
        create_private(path)
        connection = self._connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.executescript(f"BEGIN;{_SCHEMA}INSERT INTO broker VALUES ({VERSION}, NULL, 0);COMMIT")
            _migrate(connection)
            saved = _read(connection)
            connection.execute("UPDATE broker SET clean_stop = 0")
            self._ids.read(connection)
        except sqlite3.Error as error:
            if _is_damage(error):
                raise _DamagedError(f"positions.db: {error}") from error
            raise
        return saved

    def _set_aside(self) -> str:
        """
        Put a fresh database in the place of the damaged one, which gets another name: that is returned. The fresh one
        is complete before the first file is touched: on a full disk all stays as it is.
        """
        self._disconnect()
        self._open(self._path + _FRESH)
        self._disconnect()
        number = 1
        while os.path.exists(f"{self._path}.damaged.{number}"):
            number += 1
        # Its log of changes goes first: beside the fresh database it would be taken for that one's.
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                os.rename(self._path + suffix, f"{self._path}.damaged.{number}{suffix}")
        os.rename(self._path + _FRESH, self._path)
        return f"{self._path}.damaged.{number}"

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None:
            raise BackendError("the positions are closed")
        try:
            yield self._connection
        except sqlite3.Error as error:
            raise _backend_error(error) from error

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """All that is done inside, or nothing. With `durable` it is on stable storage afterwards."""
        with self._reading() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                with suppress(sqlite3.Error):
                    self._ids.read(connection)
                raise

    def _put(self, connection: sqlite3.Connection, topics: Iterable[SavedTopic]) -> None:
        topic_rows = []
        cursor_rows = []
        emptied: list[tuple[int]] = []
        dropped: list[tuple[int, int]] = []
        held: list[tuple[int, int, int, int]] = []
        for topic in topics:
            topic_id = self._ids.of_topic(topic.name)
            topic_rows.append(topic_row(topic_id, topic))
            for cursor in topic.cursors:
                cursor_id = self._ids.of_cursor(topic.name, cursor.name)
                cursor_rows.append(cursor_row(cursor_id, topic_id, cursor))
                if cursor.emptied:
                    emptied.append((cursor_id,))
                dropped += [(cursor_id, sequence) for sequence in cursor.dropped_rows]
                held += [(cursor_id, row.sequence, row.attempts, row.due_ms) for row in cursor.held]
        connection.executemany(_PUT_TOPIC, topic_rows)
        connection.executemany(_PUT_CURSOR, cursor_rows)
        connection.executemany("DELETE FROM held WHERE cursor = ?", emptied)
        connection.executemany("DELETE FROM held WHERE cursor = ? AND sequence = ?", dropped)
        connection.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", held)

    def _delete_topic(self, connection: sqlite3.Connection, topic: str) -> None:
        for channel in self._ids.channels(topic):
            self._delete_channel(connection, topic, channel)
        connection.execute("DELETE FROM topic WHERE name = ?", (topic,))
        self._ids.forget_topic(topic)

    def _delete_channel(self, connection: sqlite3.Connection, topic: str, channel: str) -> None:
        number = self._ids.forget_cursor(topic, channel)
        if number is not None:
            connection.execute("DELETE FROM held WHERE cursor = ?", (number,))
            connection.execute("DELETE FROM cursor WHERE id = ?", (number,))

    def _held(self, cursor: int, below: int) -> Iterator[int]:
        """The held sequences of a cursor under `below`, ascending, a page at a time."""
        after = -1
        while True:
            with self._lock, self._reading() as connection:
                page = connection.execute(_HELD_PAGE, (cursor, after, below, _PAGE_ROWS)).fetchall()
            for (sequence,) in page:
                yield sequence
            if len(page) < _PAGE_ROWS:
                return
            after = page[-1][0]


class _Ids:
    """The row ids of topics and cursors, so that saving needs no look-up. New ones are given out here."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._cursors: dict[str, dict[str, int]] = {}
        self._next_topic = self._next_cursor = 1

    def read(self, connection: sqlite3.Connection) -> None:
        """Take them from the database: at start, and when a transaction failed."""
        self._topics = {name: number for number, name in connection.execute("SELECT id, name FROM topic")}
        self._cursors = {name: {} for name in self._topics}
        rows = connection.execute("SELECT c.id, t.name, c.name FROM cursor c JOIN topic t ON t.id = c.topic")
        for number, topic, channel in rows:
            self._cursors[topic][channel] = number
        self._next_topic = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM topic").fetchone()[0]
        self._next_cursor = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM cursor").fetchone()[0]

    def of_topic(self, topic: str) -> int:
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = self._next_topic
            self._cursors[topic] = {}
            self._next_topic += 1
        return number

    def of_cursor(self, topic: str, channel: str) -> int:
        cursors = self._cursors[topic]
        number = cursors.get(channel)
        if number is None:
            number = cursors[channel] = self._next_cursor
            self._next_cursor += 1
        return number

    def channels(self, topic: str) -> list[str]:
        return list(self._cursors.get(topic, ()))

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._cursors.pop(topic, None)

    def forget_cursor(self, topic: str, channel: str) -> int | None:
        return self._cursors.get(topic, {}).pop(channel, None)


class _DamagedError(BackendError):
    """The database is not what we wrote."""


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema of an older nsqtw up to VERSION."""
    row = connection.execute("SELECT version FROM broker").fetchone()
    version = row[0] if row else VERSION
    while version in _MIGRATIONS:
        step, version = _MIGRATIONS[version], version + 1
        connection.executescript(f"BEGIN; {step}; UPDATE broker SET version = {version}; COMMIT")


def _read(connection: sqlite3.Connection) -> Saved:
    try:
        version, next_block, clean_stop = connection.execute(
            "SELECT version, next_block, clean_stop FROM broker"
        ).fetchone()
        check_broker(version, next_block, clean_stop)
        if version > VERSION:
            raise BackendError(f"positions.db has schema version {version}; this nsqtw knows {VERSION}")
        if not clean_stop and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _DamagedError("positions.db: quick_check found damage")
        return Saved(next_block=next_block, clean_stop=bool(clean_stop), topics=read_topics(connection))
    except (TypeError, ValueError, KeyError, struct.error) as error:
        raise _DamagedError(f"positions.db: {error}") from error


def _finish_setting_aside(path: str) -> bool:
    """Whether the last start was interrupted between giving the damaged database another name and the fresh one its."""
    interrupted = not os.path.exists(path) and os.path.exists(path + _FRESH)
    if interrupted:
        os.rename(path + _FRESH, path)
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + _FRESH + suffix)
    return interrupted


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Not SQLite's: the sqlite3 module cannot decode a text.
        return isinstance(error, sqlite3.OperationalError)
    return code in _DAMAGE_CODES or code & 0xFF in _DAMAGE_CODES


def _backend_error(error: sqlite3.Error, where: str = "positions.db") -> BackendError:
    is_full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return (BackendFull if is_full else BackendError)(f"{where}: {error}")
