"""
A start of the Spark connector's stream on a damaged spool: segments and files of ids.

It opens, or is refused with one line. What is read from it afterwards was appended before, at the same number, whatever
the files had become.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from unittest import mock
from uuid import UUID

from pyspark_nsq.channel import spool as spool_module
from pyspark_nsq.channel.spool import Spool
from pyspark_nsq.errors import SpoolError

from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.directory import directory, read
from tests.fuzz.targets.edits import damage, edits_of, made
from tests.spark.spans import frame, rows_of, span_of

_NOW = 1_000_000
_ROWS = 40


class SpoolStart(Target):
    name = "spool"
    kind = "damage to a spool of the Spark connector, and a start on it"
    examples = 150
    steps = Bound(600_000, 0)
    memory = Bound(8 << 20, 0)

    def make(self, chance: Random) -> bytes:
        return bytes([chance.randrange(2)]) + made(chance, of_rows=0.0)

    def run(self, data: bytes) -> str:
        files, sent = _template()
        with directory() as path:
            damage(files, list(edits_of(data[1:])), path, "")
            with mock.patch.object(spool_module, "_SEGMENT_ROWS", 8):
                return self._start(path, bool(data[:1] > b"\0"), sent, chance_of(data))

    def _start(self, path: Path, skips_damage: bool, sent: dict[int, bytes], chance: Random) -> str:
        try:
            spool = Spool.open(str(path), skips_damage=skips_damage)
            low = spool.first() - 1
            high = chance.randint(low, max(low, spool.end))
            found = rows_of(spool.spans(low, high))
            spool.append([span_of("a:1", [frame(b"n" * 16, b"new")])], _NOW)
            spool.forget(high, _NOW)
            spool.close()
        except SpoolError as refused:
            if "\n" in str(refused):
                raise Broken(f"no single line: {refused}") from refused
            return "refused with one line"
        wrong = [row for row in found if sent.get(row.seq) != row.body]
        if wrong:
            raise Broken(f"read {wrong[:3]}, which was not appended so")
        numbers = [row.seq for row in found]
        if numbers != sorted(set(numbers)):
            raise Broken(f"read in the order {numbers}")
        if not skips_damage and len(found) != high - low:
            raise Broken(f"read {len(found)} rows of {high - low}, without an error")
        return "started" if len(found) == high - low else "started, some rows are gone"


def _uuid() -> UUID:
    return UUID(int=1)


@cache
def _template() -> tuple[dict[str, bytes], dict[int, bytes]]:
    """The files of a spool with some segments, and all rows that it ever had."""
    with directory() as path, mock.patch.object(spool_module, "_SEGMENT_ROWS", 8), mock.patch("uuid.uuid4", _uuid):
        spool = Spool.open(str(path))
        for number in range(0, _ROWS, 4):
            some = [frame(b"%016x" % at, b"message %d" % at) for at in range(number, number + 4)]
            spool.append([span_of("ab"[number % 8 // 4] + ":1", some)], _NOW)
        sent = {row.seq: row.body for row in rows_of(spool.spans(0, spool.end))}
        spool.forget(9, _NOW)
        spool.close()
        return read(path), sent
