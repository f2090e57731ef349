"""
Positions of all cursors: `positions.db`, an SQLite database in the data path.

It is written about once a second, by the storage thread, in one transaction for all topics: so the saved checkpoint is
consistent, and a crash leaves the one before. A checkpoint need not survive a power failure (synchronous NORMAL),
unless it is durable: an older checkpoint means repeats, no loss. Reserved blocks of sequences must survive (FULL): a
sequence is never used twice.

A damaged database is quarantined as `positions.db.damaged.<n>` and replaced by a new one; `SavedState.lost` tells the
caller.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import groupby
from threading import Lock
from typing import Any

from zope.interface import implementer

from nsqtw.backends.connection import connect, corrupt
from nsqtw.backends.files import Files, backend_error, create_private
from nsqtw.backends.positions import publisher_ids
from nsqtw.backends.positions.ids import Ids
from nsqtw.backends.positions.place_rows import PlaceRows
from nsqtw.backends.positions.policy_rows import PolicyRows
from nsqtw.backends.positions.priority_rows import PriorityRows
from nsqtw.backends.positions.replay_rows import ReplayRows
from nsqtw.backends.positions.rows import (
    LATEST_MS,
    cursor_row,
    numbers_in,
    pending_row,
    read_topics,
    repair_pending,
    topic_row,
)
from nsqtw.backends.positions.schema import HELD, PLAIN, POLICIES, VERSION, bring_up_to_date
from nsqtw.backends.spare_space import SpareSpace
from nsqtw.core.checkpoint import Checkpoint, CursorState, HeldRow, PendingRow, PublisherId, SavedState, TopicState
from nsqtw.core.due_order import BEHIND_ALL, Key
from nsqtw.core.positions import IPositions
from nsqtw.errors import BackendError, BackendFull

_PUT_TOPIC = """
INSERT INTO topic VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused, released = excluded.released, released_total = excluded.released_total,
    end_sequence = excluded.end_sequence, put_total = excluded.put_total,
    dropped = excluded.dropped, waiting = excluded.waiting, durability = excluded.durability,
    retention_time = excluded.retention_time, retention_bytes = excluded.retention_bytes, floor = excluded.floor,
    marks = excluded.marks, runs = excluded.runs
"""
_PUT_CURSOR = """
INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused, next = excluded.next, taken_total = excluded.taken_total,
    first_deliveries = excluded.first_deliveries, held_count = excluded.held_count,
    replays = excluded.replays
"""
_PUT_PENDING = "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)"
_PUT_RUN = """
WITH RECURSIVE run (sequence) AS (VALUES (?) UNION ALL SELECT sequence + 1 FROM run WHERE sequence < ?)
INSERT OR REPLACE INTO held SELECT ?, sequence, 0, ? FROM run
"""

_PENDING_PAGE = """
SELECT sequence FROM held WHERE cursor = ? AND sequence > ? AND sequence < ? ORDER BY sequence LIMIT ?
"""
_DUE_PAGE = """
SELECT sequence, attempts, due_ms FROM held INDEXED BY held_due
WHERE cursor = ? AND (due_ms, sequence) > (?, ?) ORDER BY due_ms, sequence LIMIT ?
"""
_PENDING_ROW = "SELECT sequence, attempts, due_ms FROM held WHERE cursor = ? AND sequence = ?"
_DUE_COUNT = """
SELECT count(*) FROM held INDEXED BY held_due
WHERE cursor = ? AND (due_ms, sequence) > (?, ?) AND due_ms <= ? AND sequence < ?
"""

_DAMAGE_CODES = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_ERROR,
)
"""The errors of opening and reading a file that this code did not write. ERROR: a table or column is missing."""

_FRESH = ".new"
_MAX_PAGES_CHECKED = 4096
"""16 MB, in which damage is looked for in some 50 ms."""
_MAX_BLOCKS = 1 << 53
_MAX_INTEGER = (1 << 63) - 1
_PAGE_ROWS = 4096
_BUSY_SECONDS = 1.0


@implementer(IPositions)
class Positions:
    """
    The database at `path`. It may be used from several threads; `load` comes first. Pending rows and publishers' ids
    are read by a connection of their own, for which a save is no obstacle.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._ids = Ids()
        self._policies = PolicyRows()
        self._priorities = PriorityRows()
        self._places = PlaceRows()
        self._replays = ReplayRows()
        self._is_suspect = False
        self._sweep = publisher_ids.Sweep()
        self._has_publisher_ids = True
        self._windows_ms: dict[int, int | None] = {}
        """How long the publishers' ids of each topic that was saved are kept."""
        self._spare = SpareSpace(Files(), path)

    def load(self) -> SavedState:
        """IPositions API. BackendError when there is no way to have a database at this path."""
        try:
            return self._load()
        except BackendFull:
            # Opening writes as well: the file of its shared memory, at least.
            if not self._spare.give_back():
                raise
            return self._load()

    def _load(self) -> SavedState:
        with self._lock:
            try:
                lost = _finish_quarantine(self._path)
                try:
                    saved = self._open(self._path)
                except _DamagedError as damage:
                    quarantined = self._quarantine()
                    saved = self._open(self._path)
                    saved.lost_how = f"{damage}; it is set aside as {quarantined}"
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
        self._with_spare_space(lambda: self._reserve(next_block))

    def save(self, checkpoint: Checkpoint) -> None:
        """IPositions API"""
        self._with_spare_space(lambda: self._save(checkpoint))

    def _with_spare_space(self, write: Callable[[], None]) -> None:
        """Write; on a full disk once more, with the space that is kept for that."""
        try:
            write()
        except BackendFull:
            if not self._spare.give_back():
                raise
            write()
        else:
            self._spare.take()

    def _reserve(self, next_block: int) -> None:
        with self._lock, self._transaction(durable=True) as connection:
            # At least one more each time: SQLite writes and syncs nothing for a row that stays as it is, and what was
            # saved before is to be safe after this.
            connection.execute("UPDATE broker SET next_block = max(ifnull(next_block + 1, 0), ?)", (next_block,))

    def _save(self, checkpoint: Checkpoint) -> None:
        with self._lock, self._transaction(durable=checkpoint.durable) as connection:
            for topic in checkpoint.deleted_topics:
                self._delete_topic(connection, topic)
            for topic, channel in checkpoint.deleted_channels:
                self._delete_channel(connection, topic, channel)
            self._put(connection, checkpoint.topics)
            self._put_publisher_ids(connection, checkpoint)
            self._set_version(connection)
            if checkpoint.wall_shift_ms is not None:
                connection.execute("UPDATE broker SET wall_shift_ms = ?", (checkpoint.wall_shift_ms,))
            if self._is_suspect:
                connection.execute("UPDATE broker SET suspect = 1")

    def unfinished(self, topic: str) -> tuple[int, Iterable[int]] | None:
        """IPositions API. The iterable is lazy and may raise BackendError too."""
        with self._lock, self._reading() as connection:
            row = connection.execute("SELECT id, released, floor FROM topic WHERE name = ?", (topic,)).fetchone()
            if row is None:
                return None
            number, released, floor = row
            cursors = connection.execute(
                "SELECT id, next, first_deliveries FROM cursor WHERE topic = ?", (number,)
            ).fetchall()
        below = min((following for _, following, _ in cursors), default=released)
        below = below if floor is None else min(below, floor)
        first_deliveries = sorted(
            {sequence for _, _, blob in cursors for sequence in numbers_in(blob) if sequence < below}
        )
        pending = [self._pending(number, below) for number, _, _ in cursors]
        return below, (sequence for sequence, _ in groupby(merge(first_deliveries, *pending)))

    def pending(self, topic: str, channel: str, after: tuple[float, float], limit: int) -> tuple[list[PendingRow], Key]:
        """IPositions API"""
        number = self._ids.known_cursor(topic, channel)
        with self._read_pending() as reader:
            rows = reader.execute(_DUE_PAGE, (number, *_finite(after), limit)).fetchall()
            end = _end_of(rows) if len(rows) == limit else BEHIND_ALL
        return [pending_row(*values) for values in rows], end

    def count_pending(self, topic: str, channel: str, after: tuple[float, float], until_ms: float, below: float) -> int:
        """IPositions API"""
        number = self._ids.known_cursor(topic, channel)
        with self._read_pending() as reader:
            bounds = (number, *_finite(after), *_finite((until_ms, below)))
            count: int = reader.execute(_DUE_COUNT, bounds).fetchone()[0]
            return count

    def pending_row(self, topic: str, channel: str, sequence: int) -> PendingRow | None:
        """IPositions API"""
        with self._read_pending() as reader:
            bounds = (self._ids.known_cursor(topic, channel), sequence)
            row = reader.execute(_PENDING_ROW, bounds).fetchone()
        return None if row is None else pending_row(*row)

    def held(self, topic: str, channel: str) -> list[HeldRow]:
        """IPositions API"""
        with self._read_pending() as reader:
            return self._places.held(reader, self._ids.known_cursor(topic, channel))

    def publisher_ids(self, topic: str, hashes: Sequence[bytes]) -> list[PublisherId]:
        """IPositions API"""
        with self._read_pending() as reader:
            return publisher_ids.find(reader, self._ids.known_topic(topic), hashes)

    def all_publisher_ids(self, topic: str) -> list[PublisherId]:
        """IPositions API"""
        with self._read_pending() as reader:
            return publisher_ids.find_all(reader, self._ids.known_topic(topic))

    def put_publisher_ids(self, topic: str, ids: Sequence[PublisherId]) -> None:
        """IPositions API"""
        with self._lock, self._transaction(durable=False) as connection:
            publisher_ids.put(connection, publisher_ids.rows_of(self._ids.of_topic(topic), ids))

    def forget_publisher_ids(self, topic: str, start: int) -> None:
        """IPositions API"""
        with self._lock, self._transaction(durable=False) as connection:
            publisher_ids.forget(connection, self._ids.known_topic(topic), start)

    def forget_pending(self, topic: str, channel: str, start: int) -> int:
        """IPositions API"""
        with self._lock, self._transaction(durable=False) as connection:
            bounds = number, _ = (self._ids.known_cursor(topic, channel), start)
            self._places.forget(connection, number, start)
            return connection.execute("DELETE FROM held WHERE cursor = ? AND sequence >= ?", bounds).rowcount

    def forget_delays(self) -> None:
        """IPositions API"""
        with self._lock, self._transaction(durable=False) as connection:
            connection.execute("UPDATE held SET due_ms = 0 WHERE due_ms > 0")

    def close(self, clean: bool) -> None:
        """IPositions API. BackendError when the note of a clean stop cannot be written; closed it is all the same."""
        with self._lock:
            try:
                if clean and self._connection is not None and not self._is_suspect:
                    with self._transaction(durable=True) as connection:
                        connection.execute("UPDATE broker SET clean_stop = 1")
            finally:
                self._disconnect()

    def _open(self, path: str) -> SavedState:
        """Connect, make the tables if there are none, and read all. sqlite3.Error, _DamagedError."""
        create_private(path)
        connection = self._connection = connect(path, _BUSY_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            bring_up_to_date(connection)
            connection.execute("BEGIN IMMEDIATE")
            saved = _read(connection)
            self._policies.load(connection, saved)
            self._priorities.load(connection, saved)
            self._places.load(connection, saved)
            self._replays.load(connection, saved)
            self._set_version(connection)
            connection.execute("UPDATE broker SET clean_stop = 0, suspect = 0")
            connection.execute("COMMIT")
            self._ids.read(connection)
            self._reader = _open_reader(path)
        except sqlite3.Error as error:
            if _is_damage(error):
                raise _DamagedError(f"positions.db: {error}") from error
            raise
        return saved

    def _quarantine(self) -> str:
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
        connections = (self._reader, self._connection)
        self._reader = self._connection = None
        for connection in connections:
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
    def _read_pending(self) -> Iterator[sqlite3.Connection]:
        """The connection for reading beside a save."""
        if self._reader is None:
            raise BackendError("the positions are closed")
        try:
            yield self._reader
        except sqlite3.Error as error:
            self._is_suspect = self._is_suspect or _is_damage(error)
            raise _backend_error(error) from error

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """Execute everything inside in one transaction. With `durable` it is on stable storage afterwards."""
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
                    self._policies.read(connection)
                    self._priorities.read(connection)
                    self._places.read(connection)
                    self._replays.read(connection)
                raise

    def _put(self, connection: sqlite3.Connection, topics: Sequence[TopicState]) -> None:
        topic_rows = []
        cursor_rows = []
        cursors: list[tuple[int, CursorState]] = []
        emptied: list[tuple[int, int]] = []
        dropped: list[tuple[int, int]] = []
        pending: list[tuple[int, int, int, int]] = []
        runs: list[tuple[int, int, int, int]] = []
        for topic in topics:
            topic_id = self._ids.of_topic(topic.name)
            topic_rows.append(topic_row(topic_id, topic))
            for cursor in topic.cursors:
                cursor_id = self._ids.of_cursor(topic.name, cursor.name)
                cursors.append((cursor_id, cursor))
                cursor_rows.append(cursor_row(cursor_id, topic_id, cursor))
                if cursor.emptied:
                    emptied.append((cursor_id, 0))
                elif cursor.forgotten_from is not None:
                    emptied.append((cursor_id, cursor.forgotten_from))
                dropped += [(cursor_id, sequence) for sequence in cursor.dropped_rows]
                pending += [(cursor_id, row.sequence, row.attempts, row.due_ms) for row in cursor.pending]
                pending += [(cursor_id, run.first, 0, run.due_ms) for run in cursor.runs if run.count == 1]
                runs += [
                    (run.first, run.first + run.count - 1, cursor_id, run.due_ms)
                    for run in cursor.runs
                    if run.count > 1
                ]
        connection.executemany(_PUT_TOPIC, topic_rows)
        connection.executemany(_PUT_CURSOR, cursor_rows)
        connection.executemany("DELETE FROM held WHERE cursor = ? AND sequence >= ?", emptied)
        connection.executemany("DELETE FROM held WHERE cursor = ? AND sequence = ?", dropped)
        connection.executemany(_PUT_PENDING, pending)
        connection.executemany(_PUT_RUN, runs)
        self._policies.write(connection, topics)
        self._priorities.write(connection, cursors)
        self._places.write(connection, cursors)
        self._replays.write(connection, cursors)

    def _set_version(self, connection: sqlite3.Connection) -> None:
        """Let the version say what an older nsqtw would have to know. In a transaction."""
        version = HELD if self._places.has_held else POLICIES if self._policies.are_set else PLAIN
        connection.execute("UPDATE broker SET version = ? WHERE version != ?", (version, version))

    def _put_publisher_ids(self, connection: sqlite3.Connection, checkpoint: Checkpoint) -> None:
        """Insert new ones, and remove some of those that are too old."""
        rows: list[publisher_ids.Row] = []
        for topic in checkpoint.topics:
            number = self._ids.of_topic(topic.name)
            self._windows_ms[number] = topic.dedupe_window_ms
            rows += publisher_ids.rows_of(number, topic.publisher_ids)
        if rows:
            publisher_ids.put(connection, rows)
        if rows or self._has_publisher_ids:
            windows_ms = {number: self._windows_ms.get(number) for number in self._ids.topics()}
            self._has_publisher_ids = self._sweep.go_on(connection, len(rows), windows_ms, checkpoint.pending_ms)

    def _delete_topic(self, connection: sqlite3.Connection, topic: str) -> None:
        for channel in self._ids.channels(topic):
            self._delete_channel(connection, topic, channel)
        connection.execute("DELETE FROM topic WHERE name = ?", (topic,))
        self._ids.forget_topic(topic)
        self._policies.forget_topic(connection, topic)

    def _delete_channel(self, connection: sqlite3.Connection, topic: str, channel: str) -> None:
        number = self._ids.forget_cursor(topic, channel)
        if number is not None:
            connection.execute("DELETE FROM held WHERE cursor = ?", (number,))
            connection.execute("DELETE FROM cursor WHERE id = ?", (number,))
            self._priorities.forget(connection, number)
            self._places.forget(connection, number)
            self._replays.forget(connection, number)
        self._policies.forget_channel(connection, topic, channel)

    def _pending(self, cursor: int, below: int) -> Iterator[int]:
        """The held sequences of a cursor under `below`, ascending, a page at a time."""
        after = -1
        while True:
            with self._lock, self._reading() as connection:
                page = connection.execute(_PENDING_PAGE, (cursor, after, below, _PAGE_ROWS)).fetchall()
            for (sequence,) in page:
                yield sequence
            if len(page) < _PAGE_ROWS:
                return
            after = page[-1][0]


class _DamagedError(BackendError):
    """The database is not what we wrote."""


def _read(connection: sqlite3.Connection) -> SavedState:
    """Load everything except the pending rows; invalid values are repaired. In a transaction."""
    try:
        version, next_block, clean_stop, shift_ms, suspect = connection.execute(
            "SELECT version, next_block, clean_stop, wall_shift_ms, suspect FROM broker"
        ).fetchone()
        if version > VERSION:
            raise BackendError(f"positions.db has schema version {version}; this nsqtw knows {VERSION}")
        _check(connection, is_clean=clean_stop == 1, is_suspect=suspect != 0)
        saved = SavedState(next_block=next_block, clean_stop=clean_stop == 1, wall_shift_ms=shift_ms)
        bounds = (("next_block", 0, _MAX_BLOCKS, None), ("wall_shift_ms", -LATEST_MS, LATEST_MS, 0))
        for name, low, high, otherwise in bounds:
            value = getattr(saved, name)
            if value is not otherwise and (type(value) is not int or not low <= value <= high):
                saved.invalid.append(f"positions.db: {name} is {value!r}: it is left out"[:200])
                setattr(saved, name, otherwise)
        repair_pending(connection, saved)
        read_topics(connection, saved)
        return saved
    except (TypeError, ValueError, KeyError, struct.error) as error:
        raise _DamagedError(f"positions.db: {error}") from error


def _check(connection: sqlite3.Connection, *, is_clean: bool, is_suspect: bool) -> None:
    """
    Check for damage after an unclean stop: all of a small database, or of one in which damage was met; of a large one
    without the pending rows, of which there may be millions.
    """
    if is_clean and not is_suspect:
        return
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    tables = [""] if is_suspect or pages <= _MAX_PAGES_CHECKED else ["('broker')", "('topic')", "('cursor')"]
    for table in tables:
        command = f"PRAGMA quick_check{table}" if table else "PRAGMA quick_check(1)"
        if connection.execute(command).fetchone()[0] != "ok":
            raise _DamagedError("positions.db: quick_check found damage")


def _open_reader(path: str) -> sqlite3.Connection:
    reader = connect(path, _BUSY_SECONDS)
    reader.execute("PRAGMA query_only = 1")
    return reader


def _end_of(rows: list[tuple[Any, Any, Any]]) -> Key:
    """
    Return the key of the last row as it is saved, whatever `pending_row` makes of it. sqlite3.DatabaseError for one
    behind which nothing could be read: a start repairs it.
    """
    sequence, _, due_ms = rows[-1]
    if not (isinstance(due_ms, (int, float)) and isinstance(sequence, (int, float)) and due_ms <= _MAX_INTEGER):
        raise corrupt(f"a message is due at {due_ms!r}"[:100])
    return due_ms, sequence


def _finite(bounds: tuple[float, float]) -> tuple[float, float]:
    """A time and a sequence as SQLite compares them."""
    due_ms, sequence = (min(number, _MAX_INTEGER) for number in bounds)
    return due_ms, sequence


def _finish_quarantine(path: str) -> bool:
    """Return whether the last start was interrupted between renaming the damaged database and the fresh one."""
    interrupted = not os.path.exists(path) and os.path.exists(path + _FRESH)
    if interrupted:
        os.rename(path + _FRESH, path)
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + _FRESH + suffix)
    return interrupted


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code in _DAMAGE_CODES or code & 0xFF in _DAMAGE_CODES or "decode" in str(error)


def _backend_error(error: sqlite3.Error, where: str = "positions.db") -> BackendError:
    is_full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return (BackendFull if is_full else BackendError)(f"{where}: {error}")
