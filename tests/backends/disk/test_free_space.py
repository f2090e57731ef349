"""Publishing ends before the disk is full to the last byte, and goes on when there is space again."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.disk.free_space import RESERVE_BYTES
from nsqtw.backends.files import Files
from nsqtw.core.segment import encode
from nsqtw.errors import BackendFull

GIB = 1 << 30


class CountedDisk(Files):
    """A disk whose free space the test sets."""

    def __init__(self, free: int, total: int) -> None:
        self.free, self.total = free, total
        self.looks = 0

    def free_space(self, path: str) -> tuple[int, int]:
        self.looks += 1
        return self.free, self.total


def backend_on(disk: CountedDisk, directory: Path) -> DiskBackend:
    return DiskBackend(str(directory), 1 << 20, lambda *damage: None, disk)


def commit(backend: DiskBackend, first: int, size: int = 100) -> BackendFull | None:
    queue = backend.queue("t")
    return backend.commit([(queue, [encode([b"x" * size], first, 1, 1)])], False).get(queue)


@pytest.mark.parametrize(("total", "reserve"), [(100 * GIB, RESERVE_BYTES), (16 << 20, 2 << 20)])
def test_the_last_of_the_space_is_kept_and_publishing_heals_by_itself(tmp_path: Path, total: int, reserve: int) -> None:
    disk = CountedDisk(reserve + 1000, total)
    backend = backend_on(disk, tmp_path)
    assert commit(backend, 1) is None
    disk.free = reserve - 1
    refused = [commit(backend, 2 + n, reserve // 8) for n in range(4)][-1]
    assert isinstance(refused, BackendFull)
    assert str(refused) == "write to the data path: no space left on device"
    end = backend.queue("t").end
    assert isinstance(commit(backend, end), BackendFull)
    disk.free = GIB
    assert commit(backend, end) is None
    assert backend.queue("t").end == end + 1


def test_spare_files_are_given_back_before_a_publish_is_refused(tmp_path: Path) -> None:
    disk = CountedDisk(GIB, 100 * GIB)
    backend = backend_on(disk, tmp_path)
    for first in range(1, 40):
        assert commit(backend, first, 100_000) is None
    backend.queue("t").trim(30, [])
    spare = [path for path in tmp_path.glob("t/*.tmp")]
    assert spare

    class Shrunk(CountedDisk):
        def free_space(self, path: str) -> tuple[int, int]:
            return (GIB if not list(tmp_path.glob("t/*.tmp")) else 0), self.total

    disk.__class__ = Shrunk
    backend.reserve._until_next_check = 0
    assert commit(backend, 40) is None
    assert not list(tmp_path.glob("t/*.tmp"))


def test_the_space_is_not_looked_at_for_each_commit(tmp_path: Path) -> None:
    disk = CountedDisk(GIB, 100 * GIB)
    backend = backend_on(disk, tmp_path)
    for first in range(1, 1000):
        commit(backend, first)
    assert disk.looks == 1
