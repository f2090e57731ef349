"""
The ids of the messages in the files of a broker that is down, read without the broker's own readers. Deferred messages
are left out: a channel finds them by their rows in positions.db, so a refused one that is still in a file may stay
undelivered.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

from tests.crash.damage import copied_database, frames_of, ids_in

_SEGMENTS = """
SELECT topic.name, segment.frames, segment.crc FROM segment JOIN topic ON topic.id = segment.topic
    WHERE segment.delay = 0
"""


def ids_on_disk(data_path: Path) -> dict[str, frozenset[bytes]]:
    """Of each topic, for the backend `disk`."""
    directories = [path for path in data_path.iterdir() if path.is_dir()]
    return {path.name: frozenset().union(*map(_ids_in_log, path.glob("*.log"))) for path in directories}


def _ids_in_log(log: Path) -> frozenset[bytes]:
    records = [(frames, count) for frames, count, delay_ms in frames_of(log.read_bytes()) if not delay_ms]
    return frozenset().union(*[ids_in(frames, count) for frames, count in records])


def ids_in_sqlite(data_path: Path) -> dict[str, frozenset[bytes]]:
    """Of each topic, for the backend `sqlite`."""
    found: dict[str, frozenset[bytes]] = {}
    for topic, frames in _segments(data_path):
        found[topic] = found.get(topic, frozenset()) | ids_in(frames)
    return found


def _segments(data_path: Path) -> Iterator[tuple[str, bytes]]:
    with copied_database(data_path) as path, closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(_SEGMENTS).fetchall()
    for topic, frames, crc in rows:
        if topic is not None and crc32(frames) == crc:
            yield topic, frames


STORED_IDS: dict[str, Callable[[Path], dict[str, frozenset[bytes]]]] = {"disk": ids_on_disk, "sqlite": ids_in_sqlite}
