"""
The tables of replica stores in PostgreSQL. Plain SQL: no extension, trigger or advisory lock, so that engines that
speak the protocol of PostgreSQL can serve.

    nsqtw_data_set      one row for each: who owns it, its last LSN, what is saved of the broker itself
    nsqtw_epoch         one row for each claim
    nsqtw_segment       the messages
    nsqtw_topic         what is saved of a topic (`documents`), NULL before; and where its last trimmed segment ended
    nsqtw_cursor        what is saved of a channel
    nsqtw_pending       pending rows
    nsqtw_held          the further state of those that are held
    nsqtw_publisher_id  publishers' ids
    nsqtw_standby       what standbys reported

The rows of a data set have its identity, and not its name, in the column `data_set`: what was left of a removed one is
never that of another one of the same name. A data set that is being removed is called "removed IDENTITY", which no data
set can be called; the rows go first, in steps, then it goes itself.

Names are compared as bytes, as Python compares them.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from nsqtw.replication.postgres.connection import BoundedConnection

_NAME = 'text COLLATE "C" NOT NULL'

_TABLES = (
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_data_set (
    name {_NAME} PRIMARY KEY,
    identity {_NAME},
    format integer NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    lease double precision NOT NULL DEFAULT 0,      -- of the owner, in seconds
    renewed timestamptz NOT NULL DEFAULT now(),
    released boolean NOT NULL DEFAULT false,
    requested_by text NOT NULL DEFAULT '',
    lsn bigint NOT NULL DEFAULT 0,
    checkpoint_lsn bigint NOT NULL DEFAULT 0,
    next_block bigint,
    wall_shift_ms bigint
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_epoch (
    data_set {_NAME},
    epoch bigint NOT NULL,
    lsn bigint NOT NULL,                            -- of the data set when it was claimed
    owner text NOT NULL,
    claimed timestamptz NOT NULL,
    PRIMARY KEY (data_set, epoch)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_segment (
    data_set {_NAME},
    topic {_NAME},
    first bigint NOT NULL,
    lsn bigint NOT NULL,
    count bigint NOT NULL,
    delay_ms bigint NOT NULL,
    channel text NOT NULL,                          -- the only one that gets the messages; '' for all
    frames bytea NOT NULL,
    headers bytea NOT NULL,                         -- a header block (`header_block`), or nothing
    checksum bigint NOT NULL,                       -- of all but the LSN (`segment_rows`)
    PRIMARY KEY (data_set, topic, first)
)""",
    "CREATE INDEX IF NOT EXISTS nsqtw_segment_lsn ON nsqtw_segment (data_set, lsn)",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_topic (
    data_set {_NAME},
    topic {_NAME},
    state json,
    past bigint NOT NULL DEFAULT 0,                 -- one past the highest sequence that was trimmed
    PRIMARY KEY (data_set, topic)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_cursor (
    data_set {_NAME},
    topic {_NAME},
    channel {_NAME},
    state json NOT NULL,
    PRIMARY KEY (data_set, topic, channel)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_pending (
    data_set {_NAME},
    topic {_NAME},
    channel {_NAME},
    sequence bigint NOT NULL,
    attempts bigint NOT NULL,
    due_ms bigint NOT NULL,
    PRIMARY KEY (data_set, topic, channel, sequence)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_held (
    data_set {_NAME},
    topic {_NAME},
    channel {_NAME},
    sequence bigint NOT NULL,
    reason text NOT NULL,
    detail bytea NOT NULL,                          -- UTF-8: a text cannot have the character 0
    due_ms bigint NOT NULL,
    PRIMARY KEY (data_set, topic, channel, sequence)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_publisher_id (
    data_set {_NAME},
    topic {_NAME},
    hash bytea NOT NULL,
    published_ms bigint NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (data_set, topic, hash)
)""",
    f"""
CREATE TABLE IF NOT EXISTS nsqtw_standby (
    data_set {_NAME},
    identity {_NAME},
    address text NOT NULL,
    lsn bigint NOT NULL,
    reported timestamptz NOT NULL,
    PRIMARY KEY (data_set, identity)
)""",
)

_QUEUE = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,"
    " autovacuum_analyze_scale_factor = 0.05"
)
"""
For tables that are filled and emptied all day: the default would wait until a fifth of the longest backlog is dead, and
then clean so slowly that the table grows meanwhile. Space at the end of a file goes back to the system, which is the
default.
"""
_SETTINGS = (
    # Frames are often compressed already, and packing them would cost more than all the rest.
    "ALTER TABLE nsqtw_segment ALTER COLUMN frames SET STORAGE EXTERNAL",
    # Each 256 kB of frames are 130 rows of the TOAST table.
    f"ALTER TABLE nsqtw_segment SET ({_QUEUE}, toast.autovacuum_vacuum_scale_factor = 0.02,"
    " toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_cost_delay = 0)",
    # One row, changed by each transaction: in a page with much room its versions replace each other there (HOT), and
    # the index stays as it is.
    "ALTER TABLE nsqtw_data_set SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0,"
    " autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0)",
    # Rows that each checkpoint changes, where no column of an index changes.
    *(f"ALTER TABLE {table} SET (fillfactor = 70, {_QUEUE})" for table in ("nsqtw_topic", "nsqtw_cursor")),
    f"ALTER TABLE nsqtw_pending SET (fillfactor = 90, {_QUEUE})",
    f"ALTER TABLE nsqtw_publisher_id SET ({_QUEUE})",
)
"""What makes them faster. An engine that does not know it does without."""

KEYS = {
    "nsqtw_segment": ("topic, first", 500),
    "nsqtw_pending": ("topic, channel, sequence", 20_000),
    "nsqtw_held": ("topic, channel, sequence", 20_000),
    "nsqtw_publisher_id": ("topic, hash", 20_000),
    "nsqtw_cursor": ("topic, channel", 20_000),
    "nsqtw_topic": ("topic", 20_000),
    "nsqtw_standby": ("identity", 20_000),
    "nsqtw_epoch": ("epoch", 20_000),
}
"""For each table with rows of data sets the rest of its key, and how many rows are removed at once."""


def removals(table: str, where: str = "") -> tuple[str, str]:
    """
    Return the statements that remove the rows of a data set, or those of them that `where` tells: one that removes a
    limited number, to be executed until it removes none, and one for the rest. So each execution takes a limited time,
    however many there are.
    """
    key, count = KEYS[table]
    all_rows = f"data_set = %(data_set)s {where}"
    last = f"SELECT {key} FROM {table} WHERE {all_rows} ORDER BY {key} LIMIT 1 OFFSET {count - 1}"
    rest = f"DELETE FROM {table} WHERE {all_rows}"
    return f"{rest} AND ({key}) <= ({last})", rest


def has_tables(connection: BoundedConnection) -> bool:
    """Return whether the store was prepared."""
    try:
        connection.execute("SELECT 1 FROM nsqtw_data_set, nsqtw_standby LIMIT 0")
    except errors.UndefinedTable:
        return False
    return True


def make_tables(connection: BoundedConnection) -> None:
    """Make the tables. psycopg.Error, for example without the permission."""
    for attempt in (1, 2):
        try:
            connection.execute("BEGIN")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
            break
        except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
            # Another process does the same.
            connection.execute("ROLLBACK")
            if attempt == 2:
                raise
    for statement in _SETTINGS:
        try:
            connection.execute(statement)
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.DatabaseError as error:
            if connection.closed or isinstance(error, psycopg.OperationalError):
                raise


def remove_rows(connection: BoundedConnection, identity: str) -> None:
    """Remove all rows of a data set, in steps. Its own row is removed by the caller."""
    parameters: dict[str, Any] = {"data_set": identity}
    for table in KEYS:
        step, rest = removals(table)
        while connection.execute(step, parameters).rowcount:
            connection.go_on()
        connection.execute(rest, parameters)
