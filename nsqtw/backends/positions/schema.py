"""
The tables of `positions.db`, and how those of an older nsqtw become these.

Publishers' ids are ordered by their hash within a topic: a row is found, and rows that are too old are removed, by the
primary key alone.

The table `held` has the pending rows (`core.pending`), whatever the places of their messages are; its name is older
than that word, as is that of the column `held_count`. The rows are found in two orders: by sequence, when files are
trimmed, and by when they are due, when a channel wants the next ones. The index of the second order has all of a row in
it, so reading a page touches nothing else.
"""

from __future__ import annotations

import sqlite3

PLAIN, POLICIES, HELD = 4, 5, 6
"""
The version of the schema below; that with the table `policy` beside it, which is there while a policy is set
(`policy_rows`); and that while a message is held (`place_rows`). Raise them with every change, and keep reading the
versions before.
"""
VERSION = HELD
"""The highest version that is known."""

_PENDING_INDEX = "CREATE INDEX held_due ON held (cursor, due_ms, sequence, attempts)"

_TABLES_BESIDE = """
CREATE TABLE IF NOT EXISTS dedupe (     -- publishers' ids (`core.policy.deduplication`)
    topic INTEGER NOT NULL,
    hash BLOB NOT NULL,                 -- 16 bytes
    published_ms INTEGER NOT NULL,      -- in the clock of due_ms
    sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, hash)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS priority (   -- of a channel with priorities (`core.policy.priority`)
    cursor INTEGER PRIMARY KEY,
    positions BLOB NOT NULL             -- u64 each (`backends.positions.priority_rows`)
);
CREATE TABLE IF NOT EXISTS place (      -- of pending rows whose messages do not wait (`backends.positions.place_rows`)
    cursor INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (cursor, sequence)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS replay (     -- of a channel that was moved (`backends.positions.replay_rows`)
    cursor INTEGER PRIMARY KEY,
    counted_to INTEGER NOT NULL,
    replays INTEGER NOT NULL
)
"""
"""Tables that an older nsqtw does not know and leaves as they are: that they are there does not raise the version."""

_SCHEMA = f"""
CREATE TABLE broker (
    version INTEGER NOT NULL,
    next_block INTEGER,                 -- blocks of sequences under this one are taken
    clean_stop INTEGER NOT NULL,        -- 1: the last process saved everything before it ended
    wall_shift_ms INTEGER NOT NULL DEFAULT 0,   -- how far the wall clock is ahead of due_ms; since version 3
    suspect INTEGER NOT NULL DEFAULT 0  -- 1: damage was met, the next start looks through all of it; since version 3
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
    durability TEXT NOT NULL DEFAULT '',-- the class it was given while a broker ran; since version 2
    retention_time REAL,                -- seconds to keep what is finished, likewise; all from here on since version 4
    retention_bytes INTEGER,
    floor INTEGER,                      -- from this sequence on everything is kept; NULL: not because of its age
    marks BLOB NOT NULL DEFAULT x'',    -- triples of u64: first sequence, ms, bytes
    runs BLOB NOT NULL DEFAULT x''      -- pairs of u64: first sequence, messages before it
);
CREATE TABLE cursor (
    id INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    name TEXT NOT NULL,
    paused INTEGER NOT NULL,
    next INTEGER NOT NULL,
    taken_total INTEGER NOT NULL,
    first_deliveries BLOB NOT NULL,     -- u64 each
    held_count INTEGER NOT NULL DEFAULT 0,      -- its rows in held; since version 3
    replays INTEGER NOT NULL DEFAULT 0, -- below it deferred messages it comes to have no row; since version 4
    UNIQUE (topic, name)
);
CREATE TABLE held (
    cursor INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (cursor, sequence)
) WITHOUT ROWID;
{_PENDING_INDEX};                          -- since version 3
"""

_MIGRATIONS = {
    1: "ALTER TABLE topic ADD COLUMN durability TEXT NOT NULL DEFAULT ''",
    2: f"""
        ALTER TABLE broker ADD COLUMN wall_shift_ms INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE broker ADD COLUMN suspect INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE cursor ADD COLUMN held_count INTEGER NOT NULL DEFAULT 0;
        UPDATE cursor SET held_count = (SELECT count(*) FROM held WHERE held.cursor = cursor.id);
        {_PENDING_INDEX}
    """,
    3: """
        ALTER TABLE topic ADD COLUMN retention_time REAL;
        ALTER TABLE topic ADD COLUMN retention_bytes INTEGER;
        ALTER TABLE topic ADD COLUMN floor INTEGER;
        ALTER TABLE topic ADD COLUMN marks BLOB NOT NULL DEFAULT x'';
        ALTER TABLE topic ADD COLUMN runs BLOB NOT NULL DEFAULT x'';
        ALTER TABLE cursor ADD COLUMN replays INTEGER NOT NULL DEFAULT 0
    """,
}
"""
The statements from one version to the next. From 2 they read all pending rows, once: about a second for a million.
"""


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Make the tables when there are none; bring those of an older nsqtw up to PLAIN. sqlite3.Error."""
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        broker = f"INSERT INTO broker (version, clean_stop) VALUES ({PLAIN}, 0)"
        connection.executescript(f"BEGIN;{_SCHEMA}{broker};COMMIT")
    row = connection.execute("SELECT version FROM broker").fetchone()
    version = row[0] if row else PLAIN
    while version in _MIGRATIONS:
        step, version = _MIGRATIONS[version], version + 1
        try:
            connection.executescript(f"BEGIN; {step}; UPDATE broker SET version = {version}; COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    if version in (PLAIN, POLICIES, HELD):
        connection.executescript(f"BEGIN; {_TABLES_BESIDE}; COMMIT")
