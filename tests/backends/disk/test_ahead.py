"""Space that a log file that grows large is given ahead of what is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES
from nsqtw.backends.disk.open_files import AHEAD_FROM
from nsqtw.backends.files import Files
from nsqtw.testing.contracts import make_segment
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath, record_bytes

SIZE = 256 * 1024
RECORD = record_bytes(make_segment(0, size=SIZE))
SMALL, LARGE = AHEAD_FROM // RECORD, 3 * AHEAD_FROM // RECORD
"""Records of a file that gets no space ahead, and of one that does."""
LIMIT = HEADER_BYTES + 4 * LARGE * RECORD


class NotedFiles(FaultyFiles):
    """Knows up to where each open file has space, or what a process that is gone has left there."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.space_to: dict[str, int] = {}
        self.allocations = 0

    def allocate(self, fd: int, position: int, size: int) -> None:
        self.allocations += 1
        super().allocate(fd, position, size)
        self.space_to[os.readlink(f"/proc/self/fd/{fd}")] = position + size

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self.space_to.pop(os.readlink(f"/proc/self/fd/{fd}"), None)


@pytest.fixture
def files(tmp_path: Path) -> NotedFiles:
    return NotedFiles(str(tmp_path))


def fill(path: DataPath, first: int, count: int) -> None:
    path.commit_each(*[make_segment(number, size=SIZE) for number in range(first, first + count)])


def test_a_small_file_takes_no_more_than_it_has(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, SMALL)
    assert not files.allocations


def test_a_large_one_has_space_for_some_more_and_is_as_long_as_what_is_in_it(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, LARGE)
    [log] = path.logs()
    size = log.stat().st_size
    assert size == path.queue.size == HEADER_BYTES + LARGE * RECORD
    assert size <= files.space_to[str(log)] <= size + size // 8
    assert files.allocations < LARGE / 2
    assert path.sequences() == list(range(LARGE))


def test_what_is_left_over_is_given_back_at_the_end_of_the_file_and_of_the_log(
    tmp_path: Path, files: NotedFiles
) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, 5 * LARGE)
    full, last = path.logs()
    assert str(full) not in files.space_to
    fill(path, 5 * LARGE, LARGE)
    assert str(last) in files.space_to
    path.close()
    assert not files.space_to


def test_no_publish_is_refused_because_space_cannot_be_given_back(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, 4 * LARGE)
    files.fail("truncate", errno.EIO)
    fill(path, 4 * LARGE, 1)
    assert path.sequences() == list(range(4 * LARGE + 1))
    assert len(path.logs()) == 2


def test_a_file_does_not_get_space_beyond_its_limit(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, 4 * LARGE)
    assert files.space_to == {str(path.logs()[0]): LIMIT}


def test_what_a_crash_left_is_given_back_by_the_next_start(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, LARGE)
    assert files.space_to
    again = DataPath(tmp_path, LIMIT, files)
    assert not files.space_to
    assert again.sequences() == list(range(LARGE))
    assert not again.notes, "nothing was cut off"
    fill(again, LARGE, LARGE)
    assert again.sequences() == list(range(2 * LARGE))


def test_without_space_ahead_the_write_tells(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    files.fail("allocate", errno.ENOSPC, times=1000)
    fill(path, 0, LARGE)
    assert 0 < files.allocations < LARGE / 2, "it is not asked for again at once"
    assert path.sequences() == list(range(LARGE))


def test_a_write_that_is_taken_back_takes_its_space_with_it(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, LARGE)
    files.fail("write", errno.EIO)
    assert path.commit(make_segment(LARGE, size=SIZE)) is not None
    assert not files.space_to
    fill(path, LARGE, LARGE)
    assert files.space_to
    assert path.sequences() == list(range(2 * LARGE))


def test_a_file_that_is_used_again_has_its_space(tmp_path: Path, files: NotedFiles) -> None:
    path = DataPath(tmp_path, LIMIT, files)
    fill(path, 0, 9 * LARGE)
    path.queue.trim(8 * LARGE, [])
    fill(path, 9 * LARGE, 4 * LARGE)
    before = files.allocations
    fill(path, 13 * LARGE, 2 * LARGE)
    assert files.allocations == before
    assert path.sequences() == list(range(8 * LARGE, 15 * LARGE))


def test_the_call_itself_changes_no_length(tmp_path: Path) -> None:
    fd = Files().open(str(tmp_path / "file"), create=True)
    try:
        os.write(fd, b"content")
        try:
            Files().allocate(fd, 0, 1 << 20)
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP  # a file system that keeps no space
        assert os.fstat(fd).st_size == len(b"content")
        Files().truncate(fd, len(b"content"))
        assert os.fstat(fd).st_blocks * 512 < 1 << 20
        with pytest.raises(OSError, match="Bad file descriptor"):
            Files().allocate(-1, 0, 1 << 20)
    finally:
        os.close(fd)
