"""
A start on a damaged data path: log files of the backend disk, or the database of sqlite, with positions.db.

A start succeeds, or fails with one line. What is delivered after it was sent before, whatever the files had become: the
frames of a message have a checksum. It is not so for what positions.db says of them, so how often and to whom is free.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from nsqtw.backends.disk.format import HEADER_BYTES, Entry, decode_head, encode_entries
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.backends.sqlite.schema import FILE as MESSAGES_FILE
from nsqtw.errors import NsqtwError
from nsqtw.message_headers import encode_headers
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.fsck.repair import repair
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.directory import directory, read
from tests.fuzz.targets.edits import damage, edits_of, made
from tests.tools.fsck.data_path import LONG_AFTER, Stored

_SENT = {b"message %d" % number for number in range(60)} | {b"of another topic", b"new"}
_ROLL_BYTES = 700
_MOST_READ = 2_000


class StoredInSqlite(Stored):
    """As Stored, with the messages in the backend sqlite."""

    def open_backend(self, path: str) -> SqliteBackend:
        return SqliteBackend(path, self.report)


class DiskStart(Target):
    name = "disk"
    kind = "damage to a data path of the backend disk, positions.db and nsqd.dat, and a start on it"
    examples = 100
    steps = Bound(600_000, 0)
    memory = Bound(8 << 20, 0)
    of_rows = 0.4
    database = POSITIONS_FILE
    harness: type[Stored] = Stored

    def make(self, chance: Random) -> bytes:
        return bytes([chance.randrange(2)]) + made(chance, of_rows=self.of_rows)

    def run(self, data: bytes) -> str:
        with directory() as path:
            files = _template(self.harness, bool(data[:1] > b"\0"))  # type: ignore[arg-type]  # the class has a hash
            damage(files, list(edits_of(data[1:])), path, self.database)
            if chance_of(data).random() < 0.25:
                _look(path)
            return self._start(path)

    def _start(self, path: Path) -> str:
        try:
            harness = self.harness(path, max_bytes_per_file=_ROLL_BYTES)
        except NsqtwError as refused:
            if "\n" in str(refused):
                raise Broken(f"no single line: {refused}") from refused
            return "refused with one line"
        try:
            harness.wait(LONG_AFTER)
            found = _read_all(harness)
        finally:
            harness.close()
        if not found <= _SENT:
            raise Broken(f"delivered {sorted(found - _SENT)[:3]}, which nobody sent")
        return "started, damage reported" if harness.damage or harness.said("error") else "started"


class SqliteStart(DiskStart):
    name = "sqlite"
    kind = "damage to a data path of the backend sqlite, and a start on it"
    examples = 60
    of_rows = 0.6
    database = MESSAGES_FILE
    harness = StoredInSqlite


def _look(path: Path) -> None:
    """What fsck says of it, and does about it."""
    try:
        repair(check_data_path(str(path)))
    except NsqtwError as refused:
        if "\n" in str(refused):
            raise Broken(f"no single line: {refused}") from refused


def _read_all(harness: Stored) -> set[bytes]:
    """All that the channels have, and what is published now."""
    found: set[bytes] = set()
    topic = harness.topic("t")
    topic.unpause(harness.now)
    channels = sorted(topic.channels) or ["c"]
    harness.put(b"new")
    harness.turn()
    for name in channels:
        channel = harness.channel(name)
        channel.unpause()
        reader = harness.reader(name)
        is_requeued = False
        for _ in range(_MOST_READ):
            read = reader.read()
            if not read:
                break
            if not is_requeued:  # a message that is delivered again is in another place than an unread one
                reader.requeue(read.pop(0).id)
                is_requeued = True
            reader.finish(*(message.id for message in read))
            found.update(message.body for message in read)
        reader.leave()
    harness.save()
    return found


@cache
def _template(kind: type[Stored], is_clean: bool) -> dict[str, bytes]:
    """The files of a broker that ended well, or did not."""
    with directory() as path:
        harness = kind(path, max_bytes_per_file=_ROLL_BYTES)
        harness.channel("c")
        harness.channel("d").pause()
        harness.channel("c", topic="u")
        harness.topic("u").pause()
        harness.put(b"of another topic", topic="u")
        for number in range(0, 60, 3):
            harness.put(
                *(b"message %d" % at for at in range(number, number + 3)), delay_ms=60_000 if number % 15 == 0 else 0
            )
            harness.turn()
        encoded = [encode_headers({"name": "value", "filler": "x" * 50}), b""]
        for _ in range(3):
            harness.topic("t").put([b"message 1", b"message 2"], 0, lambda error: None, encoded)
            harness.turn()
        reader = harness.reader("c", ready=30)
        ids = [message.id for message in reader.read()]
        reader.finish(*ids[:10])
        reader.requeue(ids[11])
        reader.requeue(ids[12], 100.0)
        harness.save()
        reader.finish(*ids[15:20])
        if is_clean:
            harness.stop()
        files = read(path)
        if not is_clean:
            harness.close()
    return files | _indexes(files)


def _indexes(files: dict[str, bytes]) -> dict[str, bytes]:
    """Index files, which logs of this size do not get by themselves."""
    found: dict[str, bytes] = {}
    for name, data in files.items():
        if name.endswith(".log"):
            entries, at, total = [], HEADER_BYTES, 0
            while (head := decode_head(data, at)) is not None:
                entries.append(Entry(head.first, at, total))
                at, total = at + head.size, total + head.put_count
            found[name.removesuffix("log") + "index"] = encode_entries(entries)
    return found
