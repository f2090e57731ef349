"""The backends that store, and the positions, by the suites that a third party's have to pass too."""

from __future__ import annotations

import errno
import os

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.positions.store import Positions
from nsqtw.core.positions import IPositions
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend
from nsqtw.testing.contracts import BackendContract, DirectedContract, FailingCommitContract, HeaderContract
from nsqtw.testing.files import FaultyFiles
from nsqtw.testing.memory import MemoryBackend, MemoryPositions
from nsqtw.testing.positions_contract import PositionsContract


def no_report(*damage: object) -> None:
    raise AssertionError(damage)


class TestDisk(BackendContract, DirectedContract):
    """As it is by default: everything in these tests fits into one file."""

    def make_backend(self, directory: str) -> IBackend:
        return DiskBackend(directory, 100 << 20, no_report)


class TestDiskOfSmallFiles(BackendContract, DirectedContract):
    """Every few segments a new file, which trim recycles or rewrites."""

    def make_backend(self, directory: str) -> IBackend:
        return DiskBackend(directory, 4000, no_report)


class TestDiskOfTinyFiles(BackendContract, DirectedContract):
    """Every segment is larger than a file should be."""

    def make_backend(self, directory: str) -> IBackend:
        return DiskBackend(directory, 1, no_report)


class DiskThatFails(FailingCommitContract):
    max_bytes_per_file: int
    operation: str

    def make_backend(self, directory: str) -> IBackend:
        self.files = FaultyFiles(directory)
        return DiskBackend(directory, self.max_bytes_per_file, no_report, self.files)

    def break_commits(self, backend: IBackend, good: int) -> None:
        self.files.fail(self.operation, errno.EIO, after=good, times=1_000_000)

    def repair_commits(self, backend: IBackend) -> None:
        self.files.heal()


class TestDiskThatCannotWrite(DiskThatFails):
    max_bytes_per_file = 100 << 20
    operation = "write"


class TestDiskThatCannotOpenFiles(DiskThatFails):
    max_bytes_per_file = 1
    operation = "open"


class TestMemory(BackendContract, HeaderContract):
    """The fake does what the real ones do."""

    before: MemoryBackend | None = None

    def make_backend(self, directory: str) -> IBackend:
        self.before = MemoryBackend(self.before)
        return self.before


class TestMemoryThatFails(FailingCommitContract):
    before: MemoryBackend | None = None

    def make_backend(self, directory: str) -> IBackend:
        self.before = MemoryBackend(self.before)
        return self.before

    def break_commits(self, backend: IBackend, good: int) -> None:
        assert isinstance(backend, MemoryBackend)
        backend.failure, backend.good = BackendError("told to fail"), good

    def repair_commits(self, backend: IBackend) -> None:
        assert isinstance(backend, MemoryBackend)
        backend.failure = None


class TestPositions(PositionsContract):
    def make_positions(self, directory: str) -> IPositions:
        return Positions(os.path.join(directory, "positions.db"))


class TestMemoryPositions(PositionsContract):
    """The fake does what the real ones do."""

    before: MemoryPositions | None = None

    def make_positions(self, directory: str) -> IPositions:
        self.before = MemoryPositions(self.before)
        return self.before
