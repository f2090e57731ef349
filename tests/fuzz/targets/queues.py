"""The queue files of an nsqd, damaged, and their import at a start."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from nsqtw.errors import NsqtwError
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target
from tests.fuzz.targets.directory import directory, read
from tests.fuzz.targets.edits import damage, edits_of, made
from tests.nsqd_import.data_path import DataPath
from tests.nsqd_import.nsqd_files import left, write_names, write_queue

_MOST_READ = 200


class Import(Target):
    name = "import"
    kind = "damage to the disk queues and nsqd.dat of an nsqd, and their import"
    examples = 100
    steps = Bound(200_000, 0)
    memory = Bound(8 << 20, 0)

    def make(self, chance: Random) -> bytes:
        return made(chance, of_rows=0)

    def run(self, data: bytes) -> str:
        edits = list(edits_of(data))
        with directory() as path:
            damage(_template(), edits, path)
            sizes = sum(len(content) for content in read(path).values())
            try:
                harness = DataPath(path)
            except NsqtwError as refused:
                if "\n" in str(refused):
                    raise Broken(f"no single line: {refused}") from refused
                return "refused with one line"
            try:
                delivered = _read_all(harness)
            finally:
                harness.close()
            if delivered > 4 * sizes:
                raise Broken(f"{delivered} bytes delivered of {sizes} in files")
            return "imported, damage reported" if harness.said("warn") else "imported"


def _read_all(harness: DataPath) -> int:
    """How many bytes the channels of all topics deliver."""
    total = 0
    for topic in sorted(harness.broker.topics):
        harness.topic(topic).unpause(harness.now)
        for channel in sorted(harness.topic(topic).channels) or ["c"]:
            reader = harness.reader(channel, topic)
            reader.channel.unpause()
            for _ in range(_MOST_READ):
                read = reader.read()
                if not read:
                    break
                reader.finish(*(message.id for message in read))
                total += sum(len(message.body) for message in read)
            reader.leave()
    harness.save()
    return total


@cache
def _template() -> dict[str, bytes]:
    with directory() as path:
        _write(path)
        return read(path)


def _write(path: Path) -> None:
    write_names(path, {"t": ["c", "d"], "u": []}, "u", "t:d")
    write_queue(path, "t", *(left(number) for number in range(5)))
    write_queue(path, "t:c", *(left(number) for number in range(3, 20)), max_bytes_per_file=300).take(3).sync()
    write_queue(path, "t:d", *(left(number, attempts=number % 3) for number in range(10, 14)))
    write_queue(path, "u", left(30))
