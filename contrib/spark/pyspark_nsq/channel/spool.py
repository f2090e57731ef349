"""
Messages on the way from NSQ to Spark, on disk: what Spark's offsets point into.

Theory of operation. NSQ has no offsets, and a message it was told is finished does not come again. So every message
is appended here, numbered and synced, before NSQ is told. Spark asks for ranges of numbers, after a crash for the same
ones again, and says which numbers it will not ask for any more.

A message may come twice: its FIN can get lost, or it timed out while it waited to be appended. The ids that came within
the window are known, and another delivery of one is dropped. An id is nsqd's own, so the nsqd belongs to it.

    meta     key, value         'uuid': which spool this is, a part of every offset; 'end': the last seq there ever was
    nsqd     number, address
    message  seq, nsqd, id, timestamp_ns, attempts, body       seq: 1, 2, 3, ... without gaps
    seen     nsqd, id, at       at: seconds since 1970

One process writes (`spool_lock`); any number may read ranges.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from pyspark_nsq.channel.v2_message import Message
from pyspark_nsq.errors import SpoolError

FORMAT = 1
_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('uuid', '{uuid}'), ('end', 0);
CREATE TABLE nsqd(number INTEGER PRIMARY KEY, address TEXT UNIQUE);
CREATE TABLE message(seq INTEGER PRIMARY KEY, nsqd INT, id BLOB, timestamp_ns INT, attempts INT, body BLOB);
CREATE TABLE seen(nsqd INT, id BLOB, at INT, PRIMARY KEY(nsqd, id)) WITHOUT ROWID;
CREATE INDEX seen_at ON seen(at);
PRAGMA user_version = 1;
"""
_BUSY_SECONDS = 60.0
#: SQLite takes some 30,000 parameters; a look-up of so many at a time is as fast as it gets.
_IDS_AT_ONCE = 500


class Row(NamedTuple):
    """A message of the spool, as it is kept."""

    seq: int
    nsqd: str
    id: bytes
    timestamp_ns: int
    attempts: int
    body: bytes


class Spool:
    """
    The file at `path`. `open` makes a new one when there is none. Not for two threads at once.

    Every method raises SpoolError when the file cannot be read or written.
    """

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self.uuid = str(self._value("SELECT value FROM meta WHERE key = 'uuid'"))
        self._numbers = dict(connection.execute("SELECT address, number FROM nsqd"))
        self.end = int(self._value("SELECT value FROM meta WHERE key = 'end'"))
        """The number of the last message that was ever appended."""

    @classmethod
    def open(cls, path: str) -> Self:
        """For the one that writes."""
        with _told(path):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            connection = _connect(path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if _is_new(connection, path):
                connection.executescript(f"BEGIN; {_SCHEMA.format(uuid=uuid.uuid4().hex)} COMMIT;")
            return cls(path, connection)

    def append(self, deliveries: Iterable[tuple[str, Sequence[Message]]], at: int) -> int:
        """
        Append the messages of each (nsqd, messages) that are not known, in one transaction that is on disk when this
        returns; how many it were. `at`: seconds since 1970.
        """
        with _told(self.path), self._connection as transaction:
            end, numbers = self.end, {}
            for nsqd, messages in deliveries:
                number = self._number(nsqd)
                fresh = self._unknown(number, messages)
                transaction.executemany(
                    "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (seq, number, one.id, one.timestamp_ns, one.attempts, one.body)
                        for seq, one in enumerate(fresh, end + 1)
                    ],
                )
                transaction.executemany("INSERT INTO seen VALUES (?, ?, ?)", [(number, one.id, at) for one in fresh])
                end += len(fresh)
                numbers[nsqd] = number
            if end != self.end:
                transaction.execute("UPDATE meta SET value = ? WHERE key = 'end'", (end,))
        count = int(end - self.end)
        self.end = end
        self._numbers |= numbers
        return count

    def _number(self, nsqd: str) -> int:
        number: int | None = self._numbers.get(nsqd)
        if number is None:
            self._connection.execute("INSERT OR IGNORE INTO nsqd(address) VALUES (?)", (nsqd,))
            number = int(self._value("SELECT number FROM nsqd WHERE address = ?", nsqd))
        return number

    def _unknown(self, number: int, messages: Sequence[Message]) -> list[Message]:
        """Those that are not seen yet, each once."""
        by_id = {one.id: one for one in messages}
        ids = list(by_id)
        for start in range(0, len(ids), _IDS_AT_ONCE):
            some = ids[start : start + _IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT id FROM seen WHERE nsqd = ? AND id IN ({marks})"
            for (known,) in self._connection.execute(query, [number, *some]):
                del by_id[known]
        return list(by_id.values())

    def first(self) -> int:
        """The number of the first message that is there; one past `end` when there is none."""
        with _told(self.path):
            first = self._value("SELECT min(seq) FROM message")
        return self.end + 1 if first is None else int(first)

    def rows(self, after: int, end: int) -> Iterator[Row]:
        """The messages with the numbers from above `after` up to and with `end`."""
        return _rows(self._connection, self.path, after, end)

    def fit(self, after: int, end: int, most_bytes: int) -> int:
        """The last number up to `end` so that the bodies from above `after` have no more bytes; one at least."""
        total, last = 0, after
        query = "SELECT seq, length(body) FROM message WHERE seq > ? AND seq <= ? ORDER BY seq"
        with _told(self.path):
            for seq, size in self._connection.execute(query, (after, end)):
                total += size
                if total > most_bytes and last > after:
                    break
                last = seq
        return last

    def body_bytes(self, after: int, end: int) -> int:
        """How many bytes the bodies have."""
        query = "SELECT coalesce(sum(length(body)), 0) FROM message WHERE seq > ? AND seq <= ?"
        with _told(self.path):
            return int(self._value(query, after, end))

    def forget(self, end: int, before: int) -> None:
        """Spark needs nothing up to and with `end` any more; ids seen before the moment `before` may go, too."""
        with _told(self.path), self._connection as transaction:
            transaction.execute("DELETE FROM message WHERE seq <= ?", (end,))
            transaction.execute("DELETE FROM seen WHERE at < ?", (before,))

    def close(self) -> None:
        self._connection.close()

    def _value(self, query: str, *parameters: str | int) -> Any:
        return self._connection.execute(query, parameters).fetchone()[0]


def read_rows(path: str, spool: str, after: int, end: int) -> Iterator[Row]:
    """
    For a task: the rows of a spool that another process writes, and whose uuid is `spool`. Raises SpoolError, also in
    the end when these were not all.
    """
    with _told(path):
        connection = _connect(path, "ro")
    try:
        with _told(path):
            [found] = connection.execute("SELECT value FROM meta WHERE key = 'uuid'").fetchone()
        if found != spool:
            raise SpoolError(f"the spool {path} is another one than the driver's")
        count = 0
        for row in _rows(connection, path, after, end):
            count += 1
            yield row
        if count != end - after:
            raise SpoolError(f"the spool {path} has {count} of the {end - after} rows {after + 1} to {end}")
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, path: str, after: int, end: int) -> Iterator[Row]:
    query = """SELECT seq, address, id, timestamp_ns, attempts, body FROM message JOIN nsqd ON nsqd = number
        WHERE seq > ? AND seq <= ? ORDER BY seq"""
    with _told(path):
        for row in connection.execute(query, (after, end)):
            yield Row(*row)


def _connect(path: str, mode: str = "rwc") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS, check_same_thread=False
    )


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and tables == 0:
        return True
    if version != FORMAT:
        raise SpoolError(f"{path} is no spool of this version of the connector")
    return False


@contextmanager
def _told(path: str) -> Iterator[None]:
    """SQLite's errors, and the system's, with the file's name."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise SpoolError(f"the spool {path}: {error}") from error
