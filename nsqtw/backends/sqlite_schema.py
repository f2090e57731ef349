"""
The database of the backend `sqlite`: what is in it, its versions, and how it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from zlib import crc32

from nsqtw.backends.files import create_private
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, BackendFull

FILE = "messages.db"
VERSION = 1
"""The version of the schema below: raise it with every change, and add the step that leads there to `_MIGRATIONS`."""

_SCHEMA = """
CREATE TABLE topic (
    id INTEGER PRIMARY KEY,
    name TEXT UNIQUE,                   -- NULL: deleted, its rows are still to be removed
    end_sequence INTEGER NOT NULL,      -- one past the highest ever stored
    bytes INTEGER NOT NULL              -- of frames
);
CREATE TABLE segment (
    id INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    last INTEGER NOT NULL,              -- the highest sequence in it
    first INTEGER NOT NULL,
    delay INTEGER NOT NULL,             -- ms
    crc INTEGER NOT NULL,               -- CRC-32 of frames
    frames BLOB NOT NULL
);
CREATE UNIQUE INDEX place ON segment (topic, last);
"""
_MIGRATIONS: dict[int, str] = {0: _SCHEMA}
"""What leads from a version to the next one."""

_PAGE_BYTES = 8192
_BUSY_SECONDS = 5.0


def insert_segments(connection: sqlite3.Connection, topic_id: int, segments: Iterable[Segment]) -> None:
    """Write rows."""
    connection.executemany(
        "INSERT INTO segment (topic, last, first, delay, crc, frames) VALUES (?, ?, ?, ?, ?, ?)",
        [(topic_id, s.end - 1, s.first, s.delay_ms, crc32(s.frames), s.frames) for s in segments],
    )


def sqlite_error(error: sqlite3.Error) -> BackendError:
    """What an error of SQLite becomes at the border of storage."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = BackendFull if code == sqlite3.SQLITE_FULL else BackendError
    return kind(f"{FILE}: {error}")


def connect(path: str) -> sqlite3.Connection:
    """A connection that leaves transactions to the caller. sqlite3.Error."""
    create_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to VERSION. BackendError when a newer nsqtw has written it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise BackendError(f"{FILE} has version {version}, and this nsqtw knows up to {VERSION}")
    while version < VERSION:
        script = _MIGRATIONS[version]
        version += 1
        connection.executescript(f"BEGIN; {script} PRAGMA user_version = {version}; COMMIT;")
