"""Freeing space: files that go, files that are rewritten, files that are used again."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES, RECORD_BYTES, decode_header
from nsqtw.backends.disk.trim import MAX_RECYCLED
from nsqtw.backends.files import Files
from nsqtw.errors import BackendError, BackendFull
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath, record_bytes, spoil

SIZE = record_bytes(make_segment(0, 10, size=90))
"""Bytes of the record of each segment that `filled` commits."""


def filled(directory: Path, files: FaultyFiles | None = None) -> DataPath:
    """Ten files with ten segments of ten messages each."""
    path = DataPath(directory, HEADER_BYTES + 10 * SIZE, files)
    path.commit_each(*[make_segment(first, 10, size=90) for first in range(0, 1000, 10)])
    assert len(path.logs()) == 10
    return path


def sizes(path: DataPath) -> list[int]:
    return [log.stat().st_size for log in path.logs()]


def test_a_log_of_one_file_says_that_there_is_nothing_to_free(tmp_path: Path) -> None:
    path = DataPath(tmp_path, HEADER_BYTES + 10 * SIZE)
    assert not path.queue.may_free
    path.commit_each(*[make_segment(first, 10, size=90) for first in range(0, 100, 10)])
    assert not path.queue.may_free
    path.commit_each(make_segment(100, 10, size=90))
    assert path.queue.may_free
    path.queue.trim(100, [])
    assert path.queue.may_free, "a file was put aside to be written again"
    path.queue.trim(110, [])
    path.queue.trim(110, [])
    assert not path.queue.may_free
    assert path.names() == []


def test_files_nobody_wants_are_removed(tmp_path: Path) -> None:
    """Up to the one with `below`, and never the last; one of them is kept to be written again."""
    path = filled(tmp_path)
    path.queue.trim(450, [])
    assert path.sequences() == list(range(400, 1000))
    assert (path.queue.first, path.queue.size) == (400, sum(sizes(path)))
    assert path.names().count("spare.tmp") == 1
    path.queue.trim(5000, [])
    assert path.sequences() == list(range(900, 1000))
    path.reopen()
    assert path.sequences() == list(range(900, 1000))
    assert path.names() == [f"{900:014x}.log"]


def test_one_wanted_message_does_not_hold_a_file(tmp_path: Path) -> None:
    """The file is rewritten with it, under its own name; the sequence stays, the delay too."""
    path = filled(tmp_path)
    path.queue.trim(500, [123, 124, 250])
    assert path.sequences() == [123, 124, 250, *range(500, 1000)]
    assert [log.name for log in path.logs()][:3] == [f"{first:014x}.log" for first in (100, 200, 500)]
    frame = len(make_segment(0, 1, size=90).frames)
    assert sizes(path)[:2] == [HEADER_BYTES + RECORD_BYTES + 2 * frame, HEADER_BYTES + RECORD_BYTES + frame]
    assert decode_header(path.logs()[0].read_bytes()).put_total == 100
    path.reopen()
    assert path.sequences() == [123, 124, 250, *range(500, 1000)]
    path.queue.trim(500, [250])
    path.queue.trim(500, [250])
    assert path.sequences() == [250, *range(500, 1000)]


def test_the_header_survives_a_restart_and_a_rewrite(tmp_path: Path) -> None:
    """It says how many messages were put before; a damaged one says it no more, and the records are still there."""
    path = filled(tmp_path)
    path.close()
    spoil(path.logs()[2], 30)
    path.open()
    path.queue.trim(500, [123, 250])
    assert [decode_header(log.read_bytes()).put_total for log in path.logs()[:3]] == [100, 0, 500]
    assert path.sequences() == [123, 250, *range(500, 1000)]


def test_a_full_disk_is_freed(tmp_path: Path) -> None:
    """What nobody wants goes first; the rewrite that found no space comes with a later trim."""
    files = FaultyFiles(str(tmp_path))
    path = filled(tmp_path, files)
    files.space = 10
    with pytest.raises(BackendFull):
        path.queue.trim(500, [123])
    assert path.sequences() == list(range(100, 200)) + list(range(500, 1000))
    files.heal()
    path.queue.trim(500, [123])
    assert path.sequences() == [123, *range(500, 1000)]


def test_the_delay_and_the_bytes_survive(tmp_path: Path) -> None:
    """A deferred message is rewritten as it was published."""
    path = DataPath(tmp_path, 3000)
    deferred = make_segment(7, 3, size=30, delay_ms=3_600_000)
    path.commit_each(
        make_segment(0, 7, size=200), deferred, make_segment(10, 1, size=2000), make_segment(11, 1, size=2000)
    )
    path.queue.trim(11, [8])
    assert messages(read_all(path.queue))[8] == messages([deferred])[8]
    assert path.sequences() == [8, 11]


def test_a_file_with_many_wanted_messages_stays(tmp_path: Path) -> None:
    """Rewriting would cost more than it frees; it is looked at again when clearly fewer are wanted."""
    path = filled(tmp_path)
    before = sizes(path)
    wanted = list(range(0, 100, 2))
    path.queue.trim(100, wanted)
    assert sizes(path) == before
    path.queue.trim(100, wanted[:45])
    assert sizes(path) == before
    path.queue.trim(100, wanted[:5])
    assert path.sequences() == [0, 2, 4, 6, 8, *range(100, 1000)]
    assert sizes(path)[0] < before[0]


def test_wanted_messages_that_are_not_stored(tmp_path: Path) -> None:
    """A held row without a record holds nothing."""
    path = DataPath(tmp_path, 500)
    path.commit_each(*[make_segment(first, 1, size=300) for first in range(0, 50, 10)])
    path.queue.trim(40, [5, 15, 20, 25])
    assert path.sequences() == [20, 40]


def test_a_file_of_an_earlier_process_is_rewritten(tmp_path: Path) -> None:
    """With its index file or without."""
    path = DataPath(tmp_path, 1 << 20)
    for first in range(0, 3000, 100):
        path.commit(*[make_segment(number, 1, size=1000) for number in range(first, first + 100)])
    path.close()
    path.logs()[0].with_suffix(".index").unlink()
    path.open()
    kept = [0, 1, 500, 501, 503, 920, 1500, 1800]
    path.queue.trim(2000, kept)
    assert path.sequences()[:8] == kept
    assert path.sequences()[8:] == list(range(path.queue.log.log_files[2].first, 3000))
    assert max(sizes(path)[:2]) < 7000
    assert not path.logs()[1].with_suffix(".index").exists()
    path.reopen()
    assert path.sequences()[:8] == kept


def test_a_damaged_file_is_not_rewritten(tmp_path: Path) -> None:
    """It stays for a closer look; the good messages in it can be read, and trimmed when nothing is wanted."""
    path = filled(tmp_path)
    spoil(path.logs()[0], HEADER_BYTES + SIZE)
    spoil(path.logs()[1], HEADER_BYTES + SIZE - 1)
    before = sizes(path)
    path.queue.trim(300, [55, 105, 255])
    assert sizes(path)[:2] == before[:2]
    assert {55, 255} <= set(path.sequences())
    path.queue.trim(300, [])
    assert path.queue.first == 300


def test_damage_that_was_reported_is_left_out(tmp_path: Path) -> None:
    """Nobody waits for these messages any more: the others are worth a rewrite."""
    path = filled(tmp_path)
    spoil(path.logs()[0], HEADER_BYTES + SIZE)
    spoil(path.logs()[0], HEADER_BYTES + 3 * SIZE - 1)
    assert path.sequences()[10:12] == [30, 31]
    path.queue.trim(300, [5, 15, 25, 55])
    assert path.sequences() == [5, 55, *range(300, 1000)]
    assert path.damaged() == [(10, 19), (20, 29)] or path.damaged() == [(10, 29)]


def test_many_large_survivors(tmp_path: Path) -> None:
    """They are written as they come, not held in memory together."""
    path = DataPath(tmp_path, 20 << 20)
    path.commit_each(*[make_segment(number, 1, size=100_000) for number in range(250)])
    assert len(path.logs()) == 2
    kept = list(range(0, 200, 5))
    path.queue.trim(path.queue.log.log_files[1].first, kept)
    assert path.sequences() == [*kept, *range(path.queue.log.log_files[1].first, 250)]
    path.reopen()
    assert path.sequences()[: len(kept)] == kept


def test_a_vanished_file_is_no_error(tmp_path: Path) -> None:
    """Someone removed it already."""
    path = filled(tmp_path)
    path.reopen()
    for log in path.logs()[:2]:
        log.unlink()
    path.queue.trim(300, [150])
    assert path.sequences()[0] == 300


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "unlink", "sync_directory", "read"])
def test_trim_fails_and_loses_nothing(tmp_path: Path, operation: str) -> None:
    """At whatever it fails; the next one does it."""
    files = FaultyFiles(str(tmp_path))
    path = filled(tmp_path, files)
    path.reopen()
    kept = [123, 250, 251]
    for after in range(3):
        files.fail(operation, errno.EIO, after=after)
        try:
            path.queue.trim(500, kept)
        except BackendError as error:
            assert str(error) == "trim of topic t: input/output error"
        files.heal()
        assert {*kept, *range(500, 1000)} <= set(path.sequences())
    path.queue.trim(500, kept)
    path.reopen()
    path.queue.trim(500, kept)
    assert path.sequences() == [*kept, *range(500, 1000)]
    assert path.reports == []


def test_a_finished_file_is_written_again(tmp_path: Path) -> None:
    """With its old content behind the new one until it is full, which neither a reader nor a crash minds."""
    path = filled(tmp_path)
    path.queue.trim(900, [])
    path.commit(make_segment(1000, 10, size=90))
    assert "spare.tmp" not in path.names()
    assert sizes(path) == [path.limit, path.limit]
    assert path.sequences() == list(range(900, 1010))
    crashed = DataPath(tmp_path)
    assert crashed.sequences() == list(range(900, 1010))
    assert crashed.reports == path.reports == []
    assert sizes(crashed) == [path.limit, HEADER_BYTES + SIZE]


def linked(path: DataPath) -> Callable[[], None]:
    """Link all files that are followed by another one, as a backup does. Returns a check that these do not change."""
    target = path.directory / "backup"
    target.mkdir()
    for log in path.logs()[:-1]:
        (target / log.name).hardlink_to(log)
    before = {copy.name: copy.read_bytes() for copy in target.iterdir()}

    def check() -> None:
        assert {copy.name: copy.read_bytes() for copy in target.iterdir()} == before

    return check


def test_a_finished_file_of_a_backup_is_not_written_again(tmp_path: Path) -> None:
    path = filled(tmp_path)
    check_backup = linked(path)
    path.queue.trim(900, [])
    path.commit(make_segment(1000, 10, size=90))
    assert "spare.tmp" not in path.names()
    assert path.sequences() == list(range(900, 1010))
    check_backup()
    path.queue.trim(1000, [])
    path.commit_each(*[make_segment(first, 10, size=90) for first in range(1010, 1110, 10)])
    assert sizes(path) == [path.limit, path.limit], "a file that no backup has is"
    check_backup()


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_file_of_a_backup_that_is_the_last_one_again_does_not_grow(is_reopened: bool, tmp_path: Path) -> None:
    """All files behind it are freed."""
    path = DataPath(tmp_path, HEADER_BYTES + record_bytes(make_segment(0, 11, size=90_000)))
    path.commit_each(*[make_segment(first, 10, size=90_000) for first in range(0, 60, 10)])
    check_backup = linked(path)
    for _ in range(3):
        path.queue.trim(60, range(10))
    assert path.sequences() == list(range(10)) and len(path.logs()) == 1
    if is_reopened:
        path.reopen()
    path.commit(make_segment(60, 1, size=90))
    assert path.sequences() == [*range(10), 60]
    check_backup()


def test_a_recycled_file_is_cut_when_it_is_full(tmp_path: Path) -> None:
    """Nothing old is left behind its last record."""
    path = filled(tmp_path)
    path.queue.trim(900, [])
    path.commit_each(*[make_segment(first, 10, size=500) for first in (1000, 1010, 1020)])
    assert sizes(path) == [log.size for log in path.queue.log.log_files]
    assert path.sequences() == list(range(900, 1030))


def test_closing_gives_a_spare_file_back(tmp_path: Path) -> None:
    """A topic that is at rest takes no more than its messages."""
    path = filled(tmp_path)
    path.queue.trim(900, [])
    path.commit(make_segment(1000, 10, size=90))
    path.queue.trim(1000, [])
    path.close()
    assert path.names() == [f"{1000:014x}.log"]
    assert sizes(path) == [HEADER_BYTES + SIZE]


def test_few_topics_keep_a_spare_file(tmp_path: Path) -> None:
    """Those that rolled last; a thousand topics at rest hold no thousand files."""
    path = DataPath(tmp_path, 300)
    queues = [path.backend.queue(f"q{number}") for number in range(MAX_RECYCLED + 3)]
    for queue in queues:
        path.backend.commit([(queue, [make_segment(first, 1, size=150) for first in range(4)])], False)
        queue.trim(3, [])
    assert sorted(spare.parent.name for spare in tmp_path.glob("*/spare.tmp")) == [f"q{n}" for n in range(3, 7)]
    for queue in queues:
        assert path.backend.commit([(queue, [make_segment(4, 1, size=150)])], False) == {}
        assert list(messages(read_all(queue))) == [3, 4]


def test_a_spare_file_that_vanished(tmp_path: Path) -> None:
    """A new file does as well."""
    path = filled(tmp_path)
    path.queue.trim(900, [])
    (tmp_path / "t" / "spare.tmp").unlink()
    assert path.commit(make_segment(1000, 10, size=90)) is None
    assert path.sequences() == list(range(900, 1010))


class InterruptedFiles(Files):
    """Does something else before a certain read, as another thread might."""

    def __init__(self) -> None:
        self.reads_before = 0
        self.other: Callable[[], None] | None = None

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self.other is not None:
            if self.reads_before == 0:
                other, self.other = self.other, None
                other()
            self.reads_before -= 1
        return super().read(fd, size, position)


@pytest.mark.parametrize("keep", [[], [105], [205], [105, 205], range(100, 200), range(200, 300)])
@pytest.mark.parametrize("reads_before", range(4))
@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("closed", [False, True])
def test_a_trim_comes_in_between(
    tmp_path: Path, keep: Sequence[int], reads_before: int, start: int, closed: bool
) -> None:
    """
    While a reader is between two files, files it has still to read are rewritten, removed, or full of new content: it
    gets what is wanted, in order, takes nothing for damage, and nothing for the end.
    """
    files = InterruptedFiles()
    path = DataPath(tmp_path, HEADER_BYTES + 10 * SIZE, files)
    path.commit_each(*[make_segment(first, 10, size=90) for first in range(0, 500, 10)])

    def other() -> None:
        path.queue.trim(300, keep)
        path.commit_each(*[make_segment(first, 10, size=90) for first in range(500, 520, 10)])

    if closed:
        for file in path.queue.log.log_files[:-1]:
            path.backend.open_files.forget(file)
    files.reads_before, files.other = reads_before, other
    found: list[int] = []
    while segments := path.queue.read(start, 20 * SIZE):
        found += list(messages(segments))
        start = segments[-1].end
    assert path.reports == []
    assert found == sorted(found)
    assert {*keep, *range(300, 520)} <= set(found)


def test_the_order_of_a_rewrite(tmp_path: Path) -> None:
    """Whole and synced before it takes the name; no index may be there that is of the old one."""
    files = FaultyFiles(str(tmp_path))
    path = filled(tmp_path, files)
    before = len(files.trace)
    path.queue.trim(100, [7])
    operations = [step.operation for step in files.trace[before:]]
    assert operations == ["create", "write", "sync", "rename", "sync_directory"]


LARGE_SEGMENT = 20_000
"""Bytes of a message: ten of them are worth a new file."""


def grown(directory: Path) -> DataPath:
    """A log of one large file, all of it read."""
    path = DataPath(directory)
    path.commit_each(*[make_segment(first, 1, size=LARGE_SEGMENT) for first in range(10)])
    return path


def test_the_last_file_is_freed_once_it_has_stopped_growing(tmp_path: Path) -> None:
    path = grown(tmp_path)
    path.queue.trim(10, [])
    assert path.queue.may_free_later and path.sequences() == list(range(10))
    path.queue.trim(10, [])
    assert (path.names(), path.queue.size, path.queue.first, path.queue.end) == ([], 0, 10, 10)
    assert not path.queue.may_free and not path.queue.may_free_later
    path.commit_each(make_segment(12, 3))
    assert path.sequences() == [12, 13, 14]
    path.reopen()
    assert path.sequences() == [12, 13, 14]
    assert path.queue.check(12, 3) is False
    assert path.reports == []


def test_a_stop_frees_a_whole_log_with_the_next_save_only(tmp_path: Path) -> None:
    """The save before this trim was not synced: a power loss could undo it, and not the removal of the file."""
    path = grown(tmp_path)
    assert not path.queue.begin_stop()
    path.queue.trim(10, [])
    assert path.queue.may_free_later and path.sequences() == list(range(10))
    path.queue.trim(10, [])
    assert path.names() == []


def test_a_log_that_goes_on_growing_keeps_its_last_file(tmp_path: Path) -> None:
    """Files would be made and removed all the time. Once it grows slowly, one goes in a while."""
    path = grown(tmp_path)
    for end in range(10, 80, 10):
        path.queue.trim(end, [])
        assert len(path.logs()) == 1
        path.commit_each(*[make_segment(first, 1, size=LARGE_SEGMENT) for first in range(end, end + 10)])
    path.queue.trim(80, [])
    assert path.names() == [], "it grew by an eighth"


def test_a_small_last_file_stays_unless_space_is_short(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    path.commit_each(make_segment(0, 10))
    for _ in range(3):
        path.queue.trim(10, [])
    assert len(path.logs()) == 1 and not path.queue.may_free_later
    path.backend.reserve._is_low = True
    path.queue.trim(10, [])
    assert path.names() == []


def test_a_last_file_with_unread_messages_stays(tmp_path: Path) -> None:
    path = grown(tmp_path)
    for _ in range(3):
        path.queue.trim(9, [])
    assert path.sequences() == list(range(10))
    assert not path.queue.may_free_later


def test_a_last_file_with_few_wanted_messages_is_rewritten(tmp_path: Path) -> None:
    path = grown(tmp_path)
    for _ in range(3):
        path.queue.trim(10, [4])
    assert path.sequences() == [4]
    assert path.queue.size < 2 * LARGE_SEGMENT
    path.commit_each(make_segment(10, 2))
    assert path.sequences() == [4, 10, 11]
    assert len(path.logs()) == 2
    path.reopen()
    assert path.sequences() == [4, 10, 11]
    assert path.queue.check(10, 2) is False
    assert path.reports == [], "what was finished is not missing"
    path.queue.trim(10, [])
    assert path.sequences() == [10, 11]


def test_a_commit_meanwhile_keeps_the_last_file(tmp_path: Path) -> None:
    """Trim runs in another thread than commits: one that has chosen its file keeps it."""
    path = grown(tmp_path)
    path.queue.trim(10, [])
    path.queue.stage([make_segment(10)])
    path.queue.trim(10, [])
    path.queue.writer.commit()
    assert path.sequences() == list(range(11))


def test_what_was_staged_is_still_there_after_the_commit(tmp_path: Path) -> None:
    path = grown(tmp_path)
    staged = path.queue.writer.stage([make_segment(10)])
    path.queue.writer.commit()
    assert [append.size for append in staged] == [path.queue.log.log_files[-1].size]


def test_an_idle_log_keeps_no_spare_file(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.queue.trim(1000, [])
    assert "spare.tmp" in path.names()
    path.queue.trim(1000, [])
    path.queue.trim(1000, [])
    assert path.names() == []


def test_a_file_that_is_freed_with_the_last_one_does_not_become_a_spare(tmp_path: Path) -> None:
    """No trim would remove the spare file of an idle log without files."""
    path = DataPath(tmp_path, 10 * LARGE_SEGMENT)
    path.commit_each(*[make_segment(first, 1, size=LARGE_SEGMENT) for first in range(18)])
    assert len(path.logs()) == 2
    wanted = list(range(5))
    path.queue.trim(18, wanted)
    path.queue.trim(18, [])
    assert path.names() == []


def test_a_closed_last_file_is_looked_at_until_it_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trim that is passed over is repeated although the topic is idle."""
    path = grown(tmp_path)
    path.queue.trim(10, [])
    with monkeypatch.context() as patch:
        patch.setattr(path.queue._trim._pace, "is_due", lambda count: False)
        path.queue.trim(10, [])
        assert path.queue.may_free_later
    path.queue.trim(10, [])
    assert path.names() == [] and not path.queue.may_free_later
