"""
The records of one topic's queues, sorted, in a scratch database: memory does not grow with their number.

A message that is in several queues has one key there: timestamp, id, length and checksum of its body, so that keys
ascend in the order of publishing. Twice in one queue, as after a crash of nsqd, it counts once, with the higher number
of attempts. Queues are numbers here: those of channels 0, 1, ...; TOPIC is the topic's own.

The database is thrown away after each topic, and at the start: nothing in it has to survive.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from nsqtw.backends.connection import connect
from nsqtw.backends.files import create_private
from nsqtw.nsqd_import.diskqueue import HEAD, Record

TOPIC = -1
"""The number of the queue with what no channel was given yet."""

SCRATCH_FILE = "import.records.db"

_SCHEMA = """
CREATE TABLE record (
    key BLOB NOT NULL,
    queue INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    file INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (key, queue)
) WITHOUT ROWID;
CREATE TABLE place (
    rank INTEGER NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (rank, key)
) WITHOUT ROWID;
"""
_ADD = """
INSERT INTO record VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key, queue) DO UPDATE SET attempts = max(attempts, excluded.attempts)
"""
_PLACED = """
SELECT r.key, r.queue, r.attempts, r.file, r.position FROM place p CROSS JOIN record r ON r.key = p.key
    WHERE p.rank = ? ORDER BY p.key, r.queue
"""
_KEY = struct.Struct(">q16sII")
_BATCH = 10_000
_CACHE_KIB = 32 * 1024

_Row = tuple[bytes, int, int, int, int]


class Message(NamedTuple):
    """
    One distinct message: `wanted` has the attempts so far by number of queue. Its payload of `length` bytes is in the
    data file `file` of the queue `queue`, from `position` on.
    """

    key: bytes
    wanted: dict[int, int]
    queue: int
    file: int
    position: int

    @property
    def length(self) -> int:
        """Bytes of its payload."""
        length: int = _KEY.unpack(self.key)[2]
        return length


class Records:
    """The scratch database in a data path. sqlite3.Error from any method."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, SCRATCH_FILE)
        remove_scratch(directory)
        create_private(self._path)
        self._connection = connect(self._path)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "page_size = 8192"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._connection.executescript(_SCHEMA)
        self._queues: set[int] = set()

    @property
    def has_own(self) -> bool:
        """Whether some of them are of the topic's own queue."""
        return TOPIC in self._queues

    def add(self, queue: int, records: Iterable[Record]) -> int:
        """Take all records of a queue. How many they are."""
        rows = (_row(queue, record) for record in records)
        count = 0
        while batch := list(islice(rows, _BATCH)):
            self._connection.execute("BEGIN")
            self._connection.executemany(_ADD, batch)
            self._connection.execute("COMMIT")
            count += len(batch)
            self._queues.add(queue)
        return count

    def retried(self) -> dict[int, int]:
        """Return how many messages of each queue were delivered before."""
        rows = self._connection.execute("SELECT queue, count(*) FROM record WHERE attempts > 0 GROUP BY queue")
        return dict(rows.fetchall())

    def messages(self) -> Iterator[Message]:
        """Iterate over all messages in the order of publication."""
        return _messages(self._connection.execute("SELECT * FROM record ORDER BY key, queue"))

    def place(self, places: Iterable[tuple[int, bytes]]) -> None:
        """Note for some messages (rank, key), to be had by `placed`."""
        iterator = iter(places)
        while batch := list(islice(iterator, _BATCH)):
            self._connection.executemany("INSERT INTO place VALUES (?, ?)", batch)

    def placed(self, rank: int) -> Iterator[Message]:
        """The messages noted with a rank, in the order of their publishing."""
        return _messages(self._connection.execute(_PLACED, (rank,)))

    def close(self) -> None:
        """Throw it away."""
        self._connection.close()
        remove_scratch(os.path.dirname(self._path))


def remove_scratch(directory: str) -> None:
    """Remove what an earlier process left."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, SCRATCH_FILE))


def _row(queue: int, record: Record) -> _Row:
    payload = record.payload
    timestamp, attempts, message_id = HEAD.unpack_from(payload)
    key = _KEY.pack(timestamp & 0x7FFFFFFFFFFFFFFF, message_id, len(payload), crc32(payload[HEAD.size :]))
    return key, queue, attempts, record.file, record.position


def _messages(rows: Iterable[_Row]) -> Iterator[Message]:
    # A loop by hand: with groupby this is the largest part of an import.
    key = b""
    counts: dict[int, int] = {}
    at = (0, 0, 0)
    for row_key, queue, attempts, file, position in rows:
        if row_key != key:
            if counts:
                yield Message(key, counts, *at)
            key, counts, at = row_key, {}, (queue, file, position)
        counts[queue] = attempts
    if counts:
        yield Message(key, counts, *at)
