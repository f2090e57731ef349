"""When the descriptors of log files are closed: never while somebody uses them, and then at once, compiled or not."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path

from nsqtw.backends.disk.open_files import AHEAD_FROM, Descriptor, LogFile, OpenFiles
from nsqtw.backends.files import FILE_MODE, Files
from nsqtw.testing.contracts import make_segment
from nsqtw.tools.fsck.data_path import check_data_path
from tests.backends.data_path import DataPath

MEGABYTE = 1 << 20


class HastyFiles(Files):
    """Files that all fall out of the list of open files whenever one is used, as chance may have it for any of them."""

    def __init__(self) -> None:
        self.open_now: set[int] = set()
        self.used: set[str] = set()
        self.data_path: DataPath | None = None

    def open(self, path: str, *, create: bool = False, mode: int = FILE_MODE) -> int:
        fd = super().open(path, create=create, mode=mode)
        self.open_now.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.open_now.remove(fd)
        super().close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._meet("read", fd)
        return super().read(fd, size, position)

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        self._meet("write", fd)
        return super().write(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate", fd)
        super().truncate(fd, size)

    def allocate(self, fd: int, position: int, size: int) -> None:
        self._meet("allocate", fd)
        super().allocate(fd, position, size)

    def sync(self, fd: int) -> None:
        self._meet("sync", fd)
        super().sync(fd)

    def _meet(self, operation: str, fd: int) -> None:
        for file in list(self.data_path.backend.open_files._open) if self.data_path is not None else ():
            self.data_path.backend.open_files.forget(file)
        assert fd in self.open_now, f"{operation} of a file that was closed meanwhile"
        self.used.add(operation)


def descriptor_count() -> int:
    gc.collect()  # closes what tests before have left
    return len(os.listdir("/dev/fd"))


def test_a_file_that_is_used_stays_open_when_it_falls_out_of_the_list(tmp_path: Path) -> None:
    """Compiled code lets go of a local after it is last used, which may be before a call that works with it."""
    files = HastyFiles()
    path = DataPath(tmp_path / "data", limit=AHEAD_FROM + 2 * MEGABYTE, files=files)
    files.data_path = path
    for number in range(14):
        assert path.commit(make_segment(number, 1, size=MEGABYTE), durable=number % 4 == 0) is None
    assert path.sequences() == list(range(14))
    path.queue.trim(14, [3])
    assert path.sequences()[0] == 3
    assert files.used == {"read", "write", "truncate", "allocate", "sync"}
    path.reopen()
    assert 3 in path.sequences()
    path.close()
    assert not files.open_now


def test_the_check_of_a_data_path_closes_what_it_has_read(tmp_path: Path) -> None:
    path = DataPath(tmp_path / "data", limit=1000)
    path.commit_each(*(make_segment(number, 1, size=200) for number in range(10)))
    path.close()
    before = descriptor_count()
    check_data_path(str(path.directory))
    assert descriptor_count() == before


def test_the_system_has_no_more_descriptors_open_than_before(tmp_path: Path) -> None:
    before = descriptor_count()
    path = DataPath(tmp_path / "data", limit=1000)
    path.commit_each(*(make_segment(number, 1, size=200) for number in range(20)))
    count = len(path.logs())
    assert descriptor_count() >= before + count > before + 3
    for file in path.queue.log.log_files[:-1]:
        path.backend.open_files.forget(file)
    assert descriptor_count() < before + count
    path.close()
    assert descriptor_count() == before


def test_the_last_reference_closes_whoever_has_it(tmp_path: Path) -> None:
    before = descriptor_count()
    open_files = OpenFiles(Files())
    file = LogFile(str(tmp_path / "file"), 0, 0, 0)
    descriptor = open_files.open(file, create=True)
    open_files.forget(file)
    assert descriptor.write([b"one", b"two"], 5) == 11
    assert descriptor.read(100, 5) == b"onetwo"
    assert descriptor_count() == before + 1
    del descriptor
    assert descriptor_count() == before


def test_a_failure_to_close_is_not_told() -> None:
    descriptor = Descriptor(Files(), -1)
    del descriptor


class WaitingFiles(Files):
    """Looks, when a file is closed, whether others have to wait for that."""

    def __init__(self) -> None:
        self.open_files = OpenFiles(self)
        self.waited_for: list[bool] = []

    def close(self, fd: int) -> None:
        self.waited_for.append(self.open_files._lock.locked())
        super().close(fd)


def test_nobody_waits_while_files_are_closed(tmp_path: Path) -> None:
    """Closing a file that was unlinked gives its space back, which may take a while."""
    files = WaitingFiles()
    files.open_files.plenty_below = 0
    log_files = [LogFile(str(tmp_path / str(number)), number, 0, 0) for number in range(300)]
    for file in log_files:
        files.open_files.open(file, create=True)
    assert len(files.waited_for) > 20
    for file in log_files:
        files.open_files.forget(file)
    assert files.waited_for == [False] * 300
