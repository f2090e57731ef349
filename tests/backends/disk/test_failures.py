"""Disks that are full, and disks that fail."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES
from nsqtw.errors import BackendError, BackendFull
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath, record, record_bytes


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(str(tmp_path))


@pytest.fixture
def path(tmp_path: Path, files: FaultyFiles) -> DataPath:
    return DataPath(tmp_path, files=files)


def operations(files: FaultyFiles, since: int = 0) -> list[str]:
    return [step.operation for step in files.trace[since:]]


def test_the_disk_is_full_at_any_byte(path: DataPath, files: FaultyFiles) -> None:
    """The commit fails, the file is as it was before, and when there is space again all goes on."""
    path.commit(make_segment(0))
    size = path.logs()[0].stat().st_size
    for space in range(record_bytes(make_segment(1, 2))):
        files.space = space
        assert isinstance(path.commit(make_segment(1, 2)), BackendFull)
        assert path.logs()[0].stat().st_size == size
        assert (path.sequences(), path.queue.end) == ([0], 1)
    files.heal()
    assert path.commit(make_segment(1, 2)) is None
    path.reopen()
    assert path.sequences() == [0, 1, 2]
    assert len(path.logs()) == 1


def test_the_disk_is_full_at_any_byte_of_a_new_file(path: DataPath, files: FaultyFiles) -> None:
    """No file is left behind."""
    for space in range(HEADER_BYTES + record_bytes(make_segment(0))):
        files.space = space
        assert str(path.commit(make_segment(0))) == "write of topic t: no space left on device"
        assert path.logs() == []
    files.heal()
    assert path.commit(make_segment(0)) is None
    path.reopen()
    assert path.sequences() == [0]


@pytest.mark.parametrize("operation", ["write", "open", "make_directory"])
def test_any_other_failure_is_an_error(path: DataPath, files: FaultyFiles, operation: str) -> None:
    """Not one of space, and it heals."""
    files.fail(operation, errno.EIO)
    error = path.commit(make_segment(0))
    assert isinstance(error, BackendError) and not isinstance(error, BackendFull)
    assert path.commit(make_segment(0)) is None
    assert path.sequences() == [0]


def test_what_cannot_be_cut_off_stays_behind_a_sealed_file(path: DataPath, files: FaultyFiles) -> None:
    """The next commit opens a new file; what the failed one left does not count there, nor after a restart."""
    path.commit(make_segment(0))
    files.space = record_bytes(make_segment(1)) - 1
    files.fail("truncate", errno.EIO)
    assert path.commit(make_segment(1)) is not None
    files.heal()
    assert path.sequences() == [0]
    assert path.commit(make_segment(5)) is None
    assert len(path.logs()) == 2
    assert path.sequences() == [0, 5]
    path.reopen()
    assert path.sequences() == [0, 5]


def test_a_commit_over_several_files_is_all_or_nothing(tmp_path: Path, files: FaultyFiles) -> None:
    """When the third file cannot be written, the first two are as before."""
    path = DataPath(tmp_path, 400, files)
    path.commit(make_segment(0))
    segments = [make_segment(number, 1, size=150) for number in range(1, 8)]
    files.fail("write", errno.EIO, after=2)
    assert path.commit(*segments) is not None
    assert [log.stat().st_size for log in path.logs()] == [HEADER_BYTES + record_bytes(make_segment(0))]
    assert path.commit(*segments) is None
    path.reopen()
    assert path.sequences() == list(range(8))


def test_a_leftover_that_could_not_be_removed_is_written_over(path: DataPath, files: FaultyFiles) -> None:
    """A new file that failed, and could not be unlinked, has nothing that counts."""
    files.fail("write", errno.EIO)
    files.fail("unlink", errno.EIO)
    assert path.commit(make_segment(0, 3)) is not None
    assert len(path.logs()) == 1
    assert path.commit(make_segment(0)) is None
    path.reopen()
    assert path.sequences() == [0]


def test_one_write_for_each_queue(path: DataPath, files: FaultyFiles) -> None:
    """However many segments, and with the header of a new file."""
    queues = [path.backend.queue(name) for name in "abc"]
    for first in (0, 10):
        before = len(files.trace)
        writes = [(queue, [make_segment(first), make_segment(first + 1)]) for queue in queues]
        assert path.backend.commit(writes, False) == {}
        assert operations(files, before).count("write") == 3


def test_durable_means_file_and_directories(path: DataPath, files: FaultyFiles) -> None:
    """Files before the directories that name them; a file that is there already needs no directory."""
    assert path.commit(make_segment(0), durable=True) is None
    assert operations(files) == ["make_directory", "create", "write", "sync", "sync_directory", "sync_directory"]
    before = len(files.trace)
    assert path.commit(make_segment(1), durable=True) is None
    assert operations(files, before) == ["write", "sync"]


def test_durable_means_also_what_went_before(path: DataPath, files: FaultyFiles) -> None:
    """All that was committed to any topic; and when there is nothing, nothing is done."""
    other = path.backend.queue("other")
    path.commit(make_segment(0))
    path.backend.commit([(other, [make_segment(0)])], False)
    assert "sync" not in operations(files)
    before = len(files.trace)
    assert path.backend.commit([], True) == {}
    assert operations(files, before).count("sync") == 2
    before = len(files.trace)
    assert path.backend.commit([], True) == {}
    assert operations(files, before) == []


def test_a_roll_is_durable(tmp_path: Path, files: FaultyFiles) -> None:
    """The old file, the new file and the directory."""
    path = DataPath(tmp_path, 300, files)
    path.commit(make_segment(0), durable=True)
    before = len(files.trace)
    path.commit(make_segment(1, 1, size=50), make_segment(2, 1, size=50), durable=True)
    assert operations(files, before) == ["write", "create", "write", "sync", "sync", "sync_directory", "sync_directory"]


def test_after_a_failed_fsync_the_file_is_left_alone(path: DataPath, files: FaultyFiles) -> None:
    """Readers keep what they saw; the commit failed; the next one goes into a new file."""
    path.commit(make_segment(0), durable=True)
    files.fail("sync", errno.EIO)
    assert "sync of topic t: input/output error" in str(path.commit(make_segment(1), durable=True))
    assert path.sequences() == [0]
    before = len(files.trace)
    assert path.commit(make_segment(5), durable=True) is None
    assert path.commit(make_segment(6), durable=True) is None
    old = files.trace[1].file or next(step.file for step in files.trace if step.operation == "write")
    assert old not in {step.file for step in files.trace[before:]}
    assert len(path.logs()) == 2
    assert path.sequences() == [0, 5, 6]
    path.reopen()
    assert set(path.sequences()) - {1} == {0, 5, 6}


def test_the_first_file_may_be_the_one_whose_fsync_fails(path: DataPath, files: FaultyFiles) -> None:
    """The same sequence is then in another file of the same name, not in the old one."""
    files.fail("sync", errno.EIO)
    assert path.commit(make_segment(0), durable=True) is not None
    assert path.logs() == []
    assert path.commit(make_segment(0), durable=True) is None
    assert operations(files).count("create") == 2
    assert path.sequences() == [0]


def test_what_stands_in_a_file_that_is_not_written_any_more_is_synced(path: DataPath, files: FaultyFiles) -> None:
    """A failed write that cannot be undone ends the file; what was stored in it before must still become durable."""
    path.commit(make_segment(0))
    for operation in ("write", "truncate"):
        files.fail(operation, errno.EIO)
    assert path.commit(make_segment(1)) is not None
    before = len(files.trace)
    assert path.commit(make_segment(2), durable=True) is None
    assert operations(files, before).count("sync") == 2


def test_an_fsync_of_what_went_before_fails(path: DataPath, files: FaultyFiles) -> None:
    """The topic is named, also when nothing was written to it now."""
    other = path.backend.queue("other")
    path.commit(make_segment(0))
    files.fail("sync", errno.EIO)
    failed = path.backend.commit([], True)
    assert list(failed) == [path.queue]
    assert path.sequences() == [0]
    path.commit(make_segment(1))
    files.fail("sync", errno.EIO)
    failed = path.backend.commit([(other, [make_segment(0)]), (path.queue, [make_segment(2)])], True)
    assert len(failed) == 1


def test_a_durable_commit_syncs_its_own_topics_and_the_directories_that_name_them(
    path: DataPath, files: FaultyFiles
) -> None:
    """What others have written is not waited for; the data path is synced for each that is new in it."""
    other = path.backend.queue("other")
    path.commit(make_segment(0))
    path.backend.commit([(other, [make_segment(0)])], False)
    for queue in (path.queue, other):
        before = len(files.trace)
        path.backend.commit([(queue, [make_segment(1)])], True)
        assert operations(files, before) == ["write", "sync", "sync_directory", "sync_directory"]


def test_a_directory_that_cannot_be_synced(path: DataPath, files: FaultyFiles) -> None:
    """The commit fails, and the next one syncs the directory again."""
    files.fail("sync_directory", errno.EIO)
    assert path.commit(make_segment(0), durable=True) is not None
    assert path.sequences() == []
    before = len(files.trace)
    assert path.commit(make_segment(0), durable=True) is None
    assert operations(files, before).count("sync_directory") == 2
    assert path.sequences() == [0]


def test_index_files_may_fail(path: DataPath, files: FaultyFiles) -> None:
    """They are a cache: a full disk there is no reason to refuse a message."""
    segments = [make_segment(number, 1, size=600_000) for number in range(20)]
    path.commit(segments[0])
    files.fail("open", errno.ENOSPC, times=100)
    path.commit_each(*segments[1:])
    assert path.names() == ["00000000000000.log"]
    files.heal()
    path.reopen()
    assert path.sequences() == list(range(20))


def test_the_data_path_cannot_be_listed(tmp_path: Path, files: FaultyFiles) -> None:
    """Opening says so in one line."""
    files.fail("names", errno.EACCES)
    with pytest.raises(BackendError, match="open of the data path: permission denied"):
        DataPath(tmp_path, files=files)


def test_a_record_that_a_failed_commit_left_whole(path: DataPath, files: FaultyFiles) -> None:
    """After a restart it may be there; the one that took its place in the next file is there once."""
    path.commit(make_segment(0), durable=True)
    files.fail("sync", errno.EIO)
    files.fail("truncate", errno.EIO)
    path.commit(make_segment(1), durable=True)
    assert path.commit(make_segment(1, 1, size=20), durable=True) is None
    path.reopen()
    found = messages(read_all(path.queue))
    assert list(found) == [0, 1]
    assert found[1][1] == make_segment(1, 1, size=20).frames
    assert path.reports == []
    assert record(make_segment(1)) in path.logs()[0].read_bytes()


def test_a_record_whose_sync_failed_is_cut_off(path: DataPath, files: FaultyFiles) -> None:
    path.commit(make_segment(0), durable=True)
    files.fail("sync", errno.EIO)
    assert path.commit(make_segment(1), durable=True) is not None
    assert path.commit(make_segment(2), durable=True) is None
    path.reopen()
    assert path.sequences() == [0, 2]
    assert path.queue.check(0, 2) is False


def test_messages_that_no_count_knows_are_told(path: DataPath, files: FaultyFiles) -> None:
    """The refused record stays in its file, and the next file's header does not count it."""
    path.commit(make_segment(0), durable=True)
    files.fail("sync", errno.EIO)
    files.fail("truncate", errno.EIO)
    path.commit(make_segment(1), durable=True)
    path.commit(make_segment(2), durable=True)
    path.reopen()
    assert path.sequences() == [0, 1, 2]
    assert path.queue.check(0, 2) is True
    assert path.reports == []


def test_a_tail_that_cannot_be_cut_at_open(path: DataPath, files: FaultyFiles) -> None:
    """The file is left as it is, and the next commit opens another."""
    path.commit(make_segment(0))
    path.close()
    with open(path.logs()[0], "ab") as file:
        file.write(b"torn")
    files.fail("truncate", errno.EROFS)
    path.open()
    assert path.commit(make_segment(1)) is None
    assert len(path.logs()) == 2
    path.reopen()
    assert path.sequences() == [0, 1]


def test_a_deletion_that_fails(path: DataPath, files: FaultyFiles) -> None:
    """Before the directory has its other name nothing is gone; after that the next open finishes it, or another one."""
    path.commit(make_segment(0))
    files.fail("rename", errno.EIO)
    with pytest.raises(BackendError, match="deletion of topic t: input/output error"):
        path.queue.delete()
    path.reopen()
    assert path.sequences() == [0]
    files.fail("unlink", errno.EIO, times=2)
    with pytest.raises(BackendError, match="deletion of topic t"):
        path.queue.delete()
    assert path.logs() == []
    path.reopen()
    assert path.sequences() == []
    path.commit(make_segment(5))
    path.queue.delete()
    assert [entry.name for entry in path.directory.iterdir()] == ["t.deleted.0"]
    path.reopen()
    assert list(path.directory.iterdir()) == []


def test_the_last_file_vanishes(path: DataPath) -> None:
    """While it is not open: the commit that needs it fails, the next one opens another."""
    path.commit(make_segment(0))
    path.backend.open_files.forget(path.queue.log.log_files[-1])
    path.logs()[0].unlink()
    assert path.commit(make_segment(1)) is not None
    assert path.commit(make_segment(1)) is None
    assert path.sequences() == [1]
    assert path.damaged() == [(0, 0)]


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_after_a_failure_an_empty_commit_finds_out_whether_it_is_over(
    path: DataPath, files: FaultyFiles, operation: str
) -> None:
    """It leaves nothing behind; and while nothing failed it does nothing."""
    path.commit(make_segment(0), durable=True)
    files.space = 0
    assert isinstance(path.commit(make_segment(1)), BackendFull)
    with pytest.raises(BackendFull):
        path.backend.commit([], True)
    files.heal()
    files.fail(operation, errno.EIO)
    with pytest.raises(BackendError, match="write to the data path: input/output error"):
        path.backend.commit([], True)
    assert path.backend.commit([], True) == {}
    before = len(files.trace)
    assert path.backend.commit([], True) == {}
    assert operations(files, before) == []
    assert [entry.name for entry in path.directory.iterdir()] == ["t"]


def test_the_directory_of_a_topic_that_was_deleted_is_not_synced_for_ever(tmp_path: Path) -> None:
    files = FaultyFiles(str(tmp_path))
    path = DataPath(tmp_path, files=files)
    path.commit_each(make_segment(0))
    path.queue.delete()
    assert path.backend.commit([], True) == {}
    before = len(files.trace)
    files.fail("sync_directory", errno.EIO)
    assert path.backend.commit([], True) == {}
    assert operations(files, before) == [], "there is none left"
