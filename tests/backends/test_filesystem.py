"""Many files are synced by syncing their file system, where that is quicker and tells what failed."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsqtw.backends import linux
from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.files import Files
from nsqtw.backends.filesystem import BYTES_A_FILE, Filesystem
from nsqtw.errors import BackendError
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.files import FaultyFiles

MANY = 4
TOPICS = [f"topic{number}" for number in range(MANY)]


class Harness:
    """A data path with as many topics as are synced together."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.files = FaultyFiles(str(directory))
        self.backend = DiskBackend(str(directory), 1 << 20, lambda *what: None, self.files)

    def commit(self, first: int, topics: Sequence[str] = TOPICS) -> None:
        writes = [(self.backend.queue(topic), [make_segment(first)]) for topic in topics]
        assert not self.backend.commit(writes, False)

    def sync(self) -> dict[str, BackendError]:
        """What the broker does every --sync-timeout. Which topics failed."""
        failed = self.backend.commit([], True)
        return {topic: failed[queue] for topic in TOPICS if (queue := self.backend.queue(topic)) in failed}

    def syncs(self) -> Counter[str]:
        """How often what was synced since the last time."""
        steps, self.files.trace[:] = [step.operation for step in self.files.trace], []
        return Counter(step for step in steps if "sync" in step)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr("nsqtw.backends.filesystem.MANY_FILES", MANY)
    return Harness(tmp_path / "data")


def test_many_files_and_the_directories_they_are_new_in_are_synced_at_once(harness: Harness) -> None:
    harness.commit(1)
    assert harness.sync() == {}
    assert harness.syncs() == {"sync_filesystem": 1}
    harness.commit(2)
    assert harness.sync() == {}
    assert harness.syncs() == {"sync_filesystem": 1}
    assert harness.sync() == {} and not harness.syncs(), "there is nothing left"


def test_what_was_synced_so_survives_a_power_loss_and_what_came_later_may_not(harness: Harness, tmp_path: Path) -> None:
    harness.commit(1)
    harness.sync()
    harness.commit(2)
    left = tmp_path / "left"
    harness.files.crash(str(left), len(harness.files.trace), power_loss=True)
    backend = DiskBackend(str(left), 1 << 20, lambda *what: None)
    assert {topic: [*messages(read_all(backend.queue(topic)))] for topic in TOPICS} == {topic: [1] for topic in TOPICS}


def test_few_files_are_synced_one_by_one(harness: Harness) -> None:
    harness.commit(1, TOPICS[1:])
    harness.sync()
    assert harness.syncs() == {"sync": MANY - 1, "sync_directory": MANY}


def test_what_other_programs_have_written_is_not_waited_for_when_it_is_much(harness: Harness) -> None:
    harness.files.unwritten = MANY * BYTES_A_FILE + 1
    harness.commit(1)
    harness.sync()
    assert harness.syncs()["sync"] == MANY
    harness.files.unwritten -= 1
    harness.commit(2)
    harness.sync()
    assert harness.syncs() == {"sync_filesystem": 1}


def test_when_it_fails_each_file_is_asked_and_the_one_that_failed_is_told(harness: Harness) -> None:
    harness.commit(1)
    harness.files.fail("sync_filesystem", errno.EIO)
    harness.files.fail("sync", errno.EIO, after=2)
    failed = harness.sync()
    assert [*failed] == [TOPICS[2]] and "sync of topic" in str(failed[TOPICS[2]])
    assert harness.syncs()["sync"] == MANY - 1


def test_after_a_failure_each_file_is_asked_for_it_may_have_been_that_of_another(harness: Harness) -> None:
    """A flight meets the failure of a file of class os, which is told once."""
    harness.commit(1)
    harness.files.fail("sync_filesystem", errno.EIO)
    flown = [(harness.backend.queue(f"flown{number}"), [make_segment(1)]) for number in range(MANY)]
    assert not harness.backend.commit(flown, True)
    harness.files.fail("sync", errno.EIO)
    assert [*harness.sync()] == TOPICS[:1]
    harness.commit(2)
    harness.syncs()
    harness.sync()
    assert not harness.syncs()["sync_filesystem"]


def test_a_file_system_that_became_read_only_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    state = os.fstatvfs(fd)
    read_only = os.statvfs_result([*state[:8], state.f_flag | os.ST_RDONLY, *state[9:]])
    monkeypatch.setattr(os, "fstatvfs", lambda fd: read_only)
    with pytest.raises(OSError, match="Read-only"):
        linux.sync_file_system(fd)
    os.close(fd)


def test_what_is_on_another_file_system_is_synced_by_itself(harness: Harness) -> None:
    harness.files.elsewhere.add(str(harness.directory / TOPICS[0]))
    harness.commit(1)
    harness.sync()
    assert harness.syncs() == {"sync_filesystem": 1, "sync": 1, "sync_directory": 1}


def test_a_file_system_that_tells_nothing_is_not_synced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FaultyFiles):
        def open_filesystem(self, directory: str) -> None:
            return None

    volume = Filesystem(Silent(str(tmp_path)), str(tmp_path))
    assert not volume.sync(1000)
    volume.close()


def test_a_data_path_that_cannot_be_opened_is_said_by_others(tmp_path: Path) -> None:
    files = FaultyFiles(str(tmp_path))
    files.fail("open_filesystem", errno.EACCES)
    assert not Filesystem(files, str(tmp_path)).sync(1000)


def test_a_real_file_system(tmp_path: Path) -> None:
    """Whether this one tells what failed depends on where the tests run."""
    files = Files()
    assert files.open_filesystem("/proc") is None, "one that is no disk"
    fd = os.open(tmp_path, os.O_RDONLY)
    files.sync_filesystem(fd)
    os.close(fd)
    with pytest.raises(OSError, match="descriptor"):
        files.sync_filesystem(fd)
    assert 0 <= files.unwritten_bytes() < 1 << 50
    assert files.device(str(tmp_path)) == os.stat(tmp_path).st_dev
    if (volume := files.open_filesystem(str(tmp_path))) is not None:
        files.sync_filesystem(volume)
        files.close_filesystem(volume)


@pytest.mark.parametrize(
    ("release", "tells"),
    [("5.16.20", False), ("5.17.0-1-amd64", True), ("6.18.44", True), ("4.19", False), ("?", False)],
)
def test_an_old_kernel_does_not_tell(release: str, tells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "_TELLING_TYPES", _AnyType())
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", release, "#1", "x86_64")))
    fd = os.open("/", os.O_RDONLY)
    assert linux.tells_what_failed(fd) is tells
    os.close(fd)


def test_where_the_calls_are_missing_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_fallocate", "_syncfs", "_fstatfs"):
        monkeypatch.setattr(linux, name, linux._find("no_such_function"))
    monkeypatch.setattr(linux, "_MEMORY", str(tmp_path / "none"))
    fd = os.open(tmp_path, os.O_RDONLY)
    linux.keep_space(fd, 0, 1)
    with pytest.raises(OSError, match="not implemented"):
        linux.sync_file_system(fd)
    assert not linux.tells_what_failed(fd)
    assert linux.unwritten_bytes() == float("inf")
    os.close(fd)


class _AnyType:
    def __contains__(self, number: int) -> bool:
        return True
