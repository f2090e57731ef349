"""
Conversion of a spool of version 1, a database of SQLite, to a folder at the same path.

The database has the only copy of its messages, which are finished. So the folder is made beside it, synced, and moved:

    PATH                 the database               the folder
    PATH.converting      the folder, unfinished     -
    PATH.sqlite          -                          the database, until it is removed

A crash at any point leaves the database at PATH, or beside a finished folder.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pyspark_nsq.channel.span import Span
from pyspark_nsq.errors import SpoolError
from pyspark_nsq.frames import BODY_AT, ID_AT, SIZE_BYTES

_FORMAT = 1
_MAGIC = b"SQLite format 3\0"
_FRAME = struct.Struct(">iIqH16s")
_MESSAGE = 2
_AT_ONCE = 5_000
_IDS_AT_ONCE = 1 << 17


def convert(path: str) -> None:
    """Convert the database at `path` to a folder. Do nothing if it is a folder already. Raises SpoolError, OSError."""
    from pyspark_nsq.channel.spool import sync_folder

    place, unfinished, old = Path(path), Path(f"{path}.converting"), Path(f"{path}.sqlite")
    if place.is_file():
        if unfinished.exists():
            shutil.rmtree(unfinished)
        try:
            _fill(unfinished, place)
        except sqlite3.Error as error:
            raise SpoolError(f"the spool {path}: {error}") from error
        place.rename(old)
    if old.is_file() and unfinished.is_dir():
        unfinished.rename(place)
        sync_folder(place.parent)
    if place.is_dir():
        old.unlink(missing_ok=True)


def _fill(folder: Path, database: Path) -> None:
    from pyspark_nsq.channel.segment import Segment
    from pyspark_nsq.channel.spool import Spool, create
    from pyspark_nsq.channel.spool_format import IDS_SUFFIX, SegmentHead, segment_name
    from pyspark_nsq.channel.spool_ids import KnownIds

    class _Forgetful(KnownIds):
        """A message that came again after the window has two rows, and keeps them."""

        def known(self, nsqd: str, ids: set[bytes]) -> set[bytes]:
            return set()

    with database.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise SpoolError(f"the spool {database} is a file, and no spool; name a folder of its own")
    connection = sqlite3.connect(database)
    try:
        if connection.execute("PRAGMA user_version").fetchone() != (_FORMAT,):
            raise SpoolError(f"the spool {database} is a file, and no spool; name a folder of its own")
        # Now all data is in one file.
        connection.execute("PRAGMA journal_mode = DELETE")
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        (first,) = connection.execute("SELECT min(seq) FROM message").fetchone()
        first = meta["end"] + 1 if first is None else first
        folder.mkdir()
        ids = KnownIds()
        for number, (at, by_nsqd) in enumerate(_ids(connection)):
            for nsqd, some in by_nsqd.items():
                ids.add(nsqd, some)
            # Their names precede those of the first segment.
            ids.store(folder / f"{0:020d}-{number:06d}{IDS_SUFFIX}", at)
        create(folder, SegmentHead(meta["uuid"], first, first - 1))
        segment = Segment(folder / segment_name(first), SegmentHead(meta["uuid"], first, first - 1), False)
        spool = Spool(str(folder), [segment], _Forgetful(), False)
        newest = connection.execute("SELECT coalesce(max(at), 0) FROM seen").fetchone()[0]
        for span in _spans(connection):
            spool.append([span], newest)
        spool.close()
        if spool.end != meta["end"]:
            raise SpoolError(f"the spool {database} ends at row {meta['end']}, and {spool.end} was found")
    finally:
        connection.close()


def _ids(connection: sqlite3.Connection) -> Iterator[tuple[int, dict[str, list[bytes]]]]:
    """Yield the known ids in parts, each with the time of its newest one."""
    query = "SELECT at, address, id FROM seen JOIN nsqd ON nsqd = number ORDER BY at, id"
    cursor = connection.execute(query)
    while rows := cursor.fetchmany(_IDS_AT_ONCE):
        by_nsqd: dict[str, list[bytes]] = {}
        for _, nsqd, message_id in rows:
            by_nsqd.setdefault(nsqd, []).append(message_id)
        yield rows[-1][0], by_nsqd


def _spans(connection: sqlite3.Connection) -> Iterator[Span]:
    query = "SELECT address, timestamp_ns, attempts, id, body FROM message JOIN nsqd ON nsqd = number ORDER BY seq"
    cursor = connection.execute(query)
    while rows := cursor.fetchmany(_AT_ONCE):
        for nsqd, some in groupby(rows, lambda row: str(row[0])):
            frames = [
                _FRAME.pack(BODY_AT - SIZE_BYTES + len(body), _MESSAGE, timestamp, attempts, message_id) + body
                for _, timestamp, attempts, message_id, body in some
            ]
            # One by one where a message is there twice: an append would drop it.
            ids = [frame[ID_AT:BODY_AT] for frame in frames]
            step = len(frames) if len(set(ids)) == len(ids) else 1
            for low in range(0, len(frames), step):
                part = frames[low : low + step]
                yield Span(nsqd, len(part), b"".join(part))
