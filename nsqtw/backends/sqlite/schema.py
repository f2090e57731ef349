"""
The database of the backend `sqlite`: what is in it, its versions, and how it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from nsqtw.backends.connection import connect
from nsqtw.backends.files import create_private
from nsqtw.backends.header_block import has_block
from nsqtw.backends.sqlite.rows import COLUMNS, LOWEST_DIRECTED_HEAD, values_of
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, BackendFull

FILE = "messages.db"
VERSION = 2
"""The version of the schema below: raise it with every change, and add the step that leads there to `_MIGRATIONS`."""
HEADERS_VERSION = 3
"""
The version while there are rows with headers, which an older nsqtw would deliver without them. It begins with the first
of them; the first open after the last one is gone ends it.
"""

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
_ADD_HEADERS = """
BEGIN;
ALTER TABLE segment ADD COLUMN headers BLOB;    -- see rows; an older nsqtw does not mind the column
CREATE INDEX with_headers ON segment (id) WHERE headers IS NOT NULL;
COMMIT;
"""
_ADD_DIRECTED = f"""
CREATE INDEX IF NOT EXISTS directed ON segment (topic, last) WHERE head >= {LOWEST_DIRECTED_HEAD}
"""
"""The rows with a channel, for `IDirectedQueue`. An older nsqtw does not mind the index."""
_HAS_HEADERS = "SELECT EXISTS (SELECT 1 FROM segment INDEXED BY with_headers WHERE headers IS NOT NULL)"
_INSERT = f"INSERT INTO segment ({COLUMNS.removeprefix('id, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "; nsqtw fsck --repair sets it aside",
    sqlite3.SQLITE_CORRUPT: "; stop nsqd and run nsqtw fsck --repair, which keeps all that can be read",
}
"""What helps against an error, as the end of its sentence."""
_PAGE_BYTES = 8192


def insert_segments(connection: sqlite3.Connection, topic_id: int, segments: Sequence[Segment]) -> None:
    """Write rows, in a transaction."""
    connection.executemany(_INSERT, [values_of(topic_id, segment) for segment in segments])
    if any(map(has_block, segments)):
        connection.execute(f"PRAGMA user_version = {HEADERS_VERSION}")


def sqlite_error(error: sqlite3.Error) -> BackendError:
    """Convert an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = BackendFull if code == sqlite3.SQLITE_FULL else BackendError
    return kind(f"{FILE}: {error}{_REMEDIES.get((code or 0) & 0xFF, '')}")


def open_database(path: str) -> sqlite3.Connection:
    """Open `messages.db`, made if there is none, without its schema. sqlite3.Error."""
    create_private(path)
    connection = connect(path)
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


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema that is there. BackendError when a newer nsqtw has written it."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > HEADERS_VERSION:
        raise BackendError(f"{FILE} has version {version}, and this nsqtw knows up to {HEADERS_VERSION}")
    return version


def columns_of(connection: sqlite3.Connection) -> str:
    """COLUMNS, for a database that may be of an older nsqtw, with NULL for the columns that it does not have."""
    there = {row[1] for row in connection.execute("PRAGMA table_info(segment)")}
    return ", ".join(name if name in there else "NULL" for name in COLUMNS.split(", "))


def migrate(connection: sqlite3.Connection) -> None:
    """
    Bring the schema to VERSION, or to HEADERS_VERSION when there are rows with headers. BackendError when a newer nsqtw
    has written it.
    """
    version = version_of(connection)
    while version < VERSION:
        script = _MIGRATIONS[version]
        version += 1
        connection.executescript(f"BEGIN; {script} PRAGMA user_version = {version}; COMMIT;")
    if "NULL" in columns_of(connection):
        connection.executescript(_ADD_HEADERS)
    else:
        lower_version(connection)
    connection.execute(_ADD_DIRECTED)


def lower_version(connection: sqlite3.Connection) -> None:
    """Let an older nsqtw open the database if no row with headers is left."""
    if version_of(connection) == HEADERS_VERSION and not connection.execute(_HAS_HEADERS).fetchone()[0]:
        connection.execute(f"PRAGMA user_version = {VERSION}")
