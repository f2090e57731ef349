"""
The database of the backend `sqlite`: what is in it, its versions, and how it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from urllib.parse import quote

from nsqtw.backends.checksum import crc32
from nsqtw.backends.files import create_private
from nsqtw.backends.sqlite.rows import head_of
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, BackendFull

FILE = "messages.db"
VERSION = 2
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
_MIGRATIONS: dict[int, str] = {
    0: _SCHEMA,
    1: "ALTER TABLE segment ADD COLUMN head INTEGER;",  # CRC-32 of the numbers of a row; see rows
}
"""The statements from one version to the next."""

_PAGE_BYTES = 8192
_BUSY_SECONDS = 5.0


def insert_segments(connection: sqlite3.Connection, topic_id: int, segments: Iterable[Segment]) -> None:
    """Write rows."""
    connection.executemany(
        "INSERT INTO segment (topic, last, first, delay, crc, frames, head) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [_values(topic_id, segment) for segment in segments],
    )


def _values(topic_id: int, segment: Segment) -> tuple[object, ...]:
    crc, last = crc32(segment.frames), segment.end - 1
    head = head_of(topic_id, segment.first, last, segment.delay_ms, crc)
    return topic_id, last, segment.first, segment.delay_ms, crc, segment.frames, head


def sqlite_error(error: sqlite3.Error) -> BackendError:
    """Convert an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = BackendFull if code == sqlite3.SQLITE_FULL else BackendError
    hint = "; nsqtw fsck --repair sets it aside" if code == sqlite3.SQLITE_NOTADB else ""
    return kind(f"{FILE}: {error}{hint}")


def connect(path: str) -> sqlite3.Connection:
    """A connection that leaves transactions to the caller. sqlite3.Error."""
    create_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # Overwriting what is deleted would put every freed page into the WAL.
        connection.execute("PRAGMA secure_delete = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_read_only(path: str) -> sqlite3.Connection:
    """A connection that leaves the file, and its log of changes, as they are. sqlite3.Error."""
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema that is there. BackendError when a newer nsqtw has written it."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise BackendError(f"{FILE} has version {version}, and this nsqtw knows up to {VERSION}")
    return version


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to VERSION. BackendError when a newer nsqtw has written it."""
    version = version_of(connection)
    while version < VERSION:
        script = _MIGRATIONS[version]
        version += 1
        connection.executescript(f"BEGIN; {script} PRAGMA user_version = {version}; COMMIT;")
