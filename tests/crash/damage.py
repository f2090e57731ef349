"""
What a disk may do to files while nobody looks: cut the end off, flip bits. And what that may cost, found out without
the broker's own readers; a malformed database is repaired first.

    log file   header, 64 bytes | record ...      record   head, 40 bytes | frames
    head       magic, 4 bytes | length of payload u32 | first sequence u64 | count u32 | layout u32 | delay ms u64
               | CRC of the payload u32 | CRC of the head u32
    payload    frames, and behind them, with the magics NSH and NSD, a block with the headers
    layout     other than 0: a table between head and frames, 4 bytes for each block but the last; the blocks have
               (layout >> 16) * 4096 bytes, the first one layout & 0xffff
    frame      as in tests.wire
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zlib import crc32

from nsqtw.tools.fsck.command import run as fsck
from tests.crash.promises import expect

HEADER_BYTES = 64
_HEAD = struct.Struct(">4sIQIIQ")
_HEAD_BYTES = 40
_TOMBSTONE = 0xFFFFFFFF
_FRAMES_CRC_AT = 32
_MAGIC = re.compile(rb"\xf5NS[QHD]")
_CRC_AT = 36
_CRC = struct.Struct(">I")
_FRAME = struct.Struct(">IIqH16s")
_SIZE_BYTES = 4
_MOST_FLIPS = 3


class StoredMessage(NamedTuple):
    """The id and the body of a message in the files of a broker."""

    id: bytes
    body: bytes


class Record(NamedTuple):
    """Where one is in a log file, and the messages in it."""

    start: int
    end: int
    messages: frozenset[StoredMessage]


def messages_in(frames: bytes, count: int | None = None) -> frozenset[StoredMessage]:
    """The messages of a run of frames, up to where it is damaged; of so many frames, where others follow."""
    found, place = set[StoredMessage](), 0
    while place + _FRAME.size <= len(frames) and len(found) != count:
        size, *_, message_id = _FRAME.unpack_from(frames, place)
        end = place + _SIZE_BYTES + size
        if not place + _FRAME.size <= end <= len(frames):
            break
        found.add(StoredMessage(message_id, frames[place + _FRAME.size : end]))
        place = end
    return frozenset(found)


def ids_in(frames: bytes, count: int | None = None) -> frozenset[bytes]:
    """The ids in a run of message frames that is whole; of so many frames, where others follow."""
    found, place = set[bytes](), 0
    while place < len(frames) and len(found) != count:
        size, *_, message_id = _FRAME.unpack_from(frames, place)
        found.add(message_id)
        place += _SIZE_BYTES + size
    return frozenset(found)


def frames_of(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The frames of the records of a log file that are whole, their number, and the delay of each record in ms."""
    for record in records_of(content):
        (crc,) = _CRC.unpack_from(content, record.start + _FRAMES_CRC_AT)
        _, length, _, count, _, delay_ms = _HEAD.unpack_from(content, record.start)
        payload = content[record.end - length : record.end]
        if crc32(payload) == crc:
            yield payload, count, delay_ms


def records_of(content: bytes) -> Iterator[Record]:
    """
    The records of a log file whose heads are whole. One that was recycled has older ones behind the last, with lower
    sequences.
    """
    place, above = _next_magic(content, HEADER_BYTES), -1
    while 0 <= place <= len(content) - _HEAD_BYTES:
        _, length, first, count, layout, _ = _HEAD.unpack_from(content, place)
        head, (crc,) = content[place : place + _CRC_AT], _CRC.unpack_from(content, place + _CRC_AT)
        start = place + _HEAD_BYTES
        if 0 < layout < _TOMBSTONE:
            block = (layout >> 16) * 4096
            start += 4 * -(((layout & 0xFFFF) - length) // block)
        end = start + length
        if crc32(head) == crc and first > above and end <= len(content):
            yield Record(place, end, messages_in(content[start:end], count))
            above = first
        else:
            end = place + 1
        place = _next_magic(content, end)


def _next_magic(content: bytes, start: int) -> int:
    found = _MAGIC.search(content, start)
    return -1 if found is None else found.start()


def damage_disk(data_path: Path, chance: random.Random) -> frozenset[StoredMessage]:
    """Cut off or flip something in the newest file of one topic. The messages that were in what is hit."""
    directories = [path for path in sorted(data_path.iterdir()) if path.is_dir()]
    logs = [sorted(path.glob("*.log"))[-1] for path in directories if [*path.glob("*.log")]]
    if not logs:
        return frozenset()
    log = chance.choice(logs)
    whole = log.read_bytes()
    content = bytearray(whole)
    records = [*records_of(whole)]
    if not records:
        return frozenset()
    start, end = records[-min(len(records), chance.randint(1, 20))].start, records[-1].end
    if chance.random() < 0.5:
        cut = chance.randrange(start, end)
        os.truncate(log, cut)
        hit = [record for record in records if record.end > cut]
    else:
        places = [chance.randrange(start, end) for _ in range(chance.randint(1, _MOST_FLIPS))]
        for place in places:
            content[place] ^= 1 << chance.randrange(8)
        log.write_bytes(content)
        hit = [record for record in records if any(record.start <= place < record.end for place in places)]
    return frozenset().union(*(record.messages for record in hit))


def damage_sqlite(data_path: Path, chance: random.Random) -> frozenset[StoredMessage]:
    """
    Cut off or flip something in the write-ahead log. The messages that SQLite then has not got any more. If the
    database had pages from behind that place, and is malformed with older ones, `nsqtw fsck --repair` is run, as the
    documentation says.
    """
    log = data_path / "messages.db-wal"
    if not log.exists() or not log.stat().st_size:
        return frozenset()
    before = _in_database(data_path)
    content = bytearray(log.read_bytes())
    place = chance.randrange(len(content) // 2, len(content))
    if chance.random() < 0.5:
        os.truncate(log, place)
    else:
        content[place] ^= 1 << chance.randrange(8)
        log.write_bytes(content)
    if not is_sound(data_path):
        repair_malformed(data_path)
    return before - _in_database(data_path)


def repair_malformed(data_path: Path) -> None:
    """Run `nsqtw fsck --repair` on a malformed database. Broken if that loses a message that can be read."""
    readable = _readable(data_path)
    with redirect_stdout(StringIO()) as said:
        fsck(str(data_path), must_repair=True)
    lost = readable - _in_database(data_path)
    expect(not lost and is_sound(data_path), "nsqtw fsck --repair", (said.getvalue(), lost))


@contextmanager
def copied_database(data_path: Path) -> Iterator[Path]:
    """A copy of the messages' database: SQLite changes what it opens."""
    with TemporaryDirectory() as elsewhere:
        for path in data_path.glob("messages.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, elsewhere)
        yield Path(elsewhere, "messages.db")


def _in_database(data_path: Path) -> frozenset[StoredMessage]:
    """All messages stored."""
    with copied_database(data_path) as copy, closing(sqlite3.connect(copy)) as connection:
        rows = connection.execute("SELECT frames FROM segment").fetchall()
    return frozenset().union(*(messages_in(frames) for (frames,) in rows))


def is_sound(data_path: Path) -> bool:
    """Return whether the database agrees with itself."""
    with copied_database(data_path) as copy, closing(sqlite3.connect(copy)) as connection:
        try:
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
        except sqlite3.DatabaseError:
            return False


def _readable(data_path: Path) -> frozenset[StoredMessage]:
    """All messages of a malformed database that a walk over its table finds with a right checksum, from either end."""
    found = set[StoredMessage]()
    with copied_database(data_path) as copy, closing(sqlite3.connect(copy)) as connection:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.DatabaseError):
                for frames, crc in connection.execute(
                    f"SELECT frames, crc FROM segment NOT INDEXED ORDER BY id {order}"
                ):
                    if crc32(frames) == crc:
                        found |= messages_in(frames)
    return frozenset(found)


DAMAGES = {"disk": damage_disk, "sqlite": damage_sqlite}
