"""A data path with one topic on disk, as the tests of the disk backend use it."""

from __future__ import annotations

from pathlib import Path

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.disk.format import RECORD_BYTES, encode_head
from nsqtw.backends.files import Files
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError
from nsqtw.testing.contracts import messages, read_all

LARGE = 100 << 20


class DataPath:
    """A directory, the backend on it, the queue of the topic `t`, and what was reported so far."""

    def __init__(self, directory: Path, limit: int = LARGE, files: Files | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.limit = limit
        self.files = files
        self.reports: list[tuple[str, str, int, int, str]] = []
        self.notes: list[tuple[str, str]] = []
        """What was done that costs no message: where, and what."""
        self.open()

    def open(self) -> None:
        self.backend = DiskBackend(str(self.directory), self.limit, self.report, self.files)
        self.queue = self.backend.queue("t")

    def report(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        if last < first:
            self.notes.append((where, why))
        else:
            self.reports.append((topic, where, first, last, why))

    def close(self) -> None:
        self.backend.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def commit(self, *segments: Segment, durable: bool = False) -> BackendError | None:
        return self.backend.commit([(self.queue, segments)], durable).get(self.queue)

    def commit_each(self, *segments: Segment) -> None:
        for segment in segments:
            assert self.commit(segment) is None

    def sequences(self) -> list[int]:
        return list(messages(read_all(self.queue)))

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("t/*.log"))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("t/*"))

    def damaged(self) -> list[tuple[int, int]]:
        """The first and last sequences of the reports."""
        return [(first, last) for _, _, first, last, _ in self.reports]


def spoil(path: Path, position: int) -> None:
    """Damage a byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x5B
    path.write_bytes(data)


def record(segment: Segment) -> bytes:
    """How a segment stands in a log file."""
    return encode_head(segment) + segment.frames


def record_bytes(segment: Segment) -> int:
    return RECORD_BYTES + len(segment.frames)
