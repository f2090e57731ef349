"""Log files: their format, how they roll, how they are opened, and what of the data path is not touched."""

from __future__ import annotations

import errno
import os
import random
import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest

from nsqtw.backends.disk.backend import DiskBackend, DiskFactory
from nsqtw.backends.disk.format import HEADER_BYTES, Entry, decode_header, encode_entries
from nsqtw.backends.disk.open_files import KEPT_OPEN, LogFile, OpenFiles
from nsqtw.backends.files import FILE_MODE, Files
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import IBackendQueueFactory
from nsqtw.net.descriptors import Descriptors
from nsqtw.testing.contracts import make_segment, messages, read_all
from tests.backends.data_path import LARGE, DataPath, record_bytes


def ignore(*report: object) -> None:
    pass


class CountingFiles(Files):
    """Knows how many bytes were read, and which files are open."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.open_now: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self.open_now.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.open_now.discard(fd)
        super().close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.bytes_read += len(data)
        return data


def test_the_factory_opens_it(tmp_path: Path) -> None:
    """Files are rolled at the broker's --max-bytes-per-file."""
    assert IBackendQueueFactory.providedBy(DiskFactory())
    backend = DiskFactory().open("", str(tmp_path), SimpleNamespace(max_bytes_per_file=300), ignore)
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(number, 1, size=200) for number in range(3)])], False)
    backend.close()
    assert len(list(tmp_path.glob("t/*.log"))) == 3


def test_it_takes_no_argument(tmp_path: Path) -> None:
    """One line says so."""
    with pytest.raises(OptionError, match="takes no argument"):
        DiskFactory().open("/elsewhere", str(tmp_path), None, ignore)


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    """Format version 2: a file written today is read by every later version."""
    path = DataPath(tmp_path)
    path.commit(Segment(0x123, 2, 7, b"frames"))
    header = "4e535154574c4f47 0002 0000 00000000 0000000000000123 0000000000000000" + 28 * "00"
    head = "f54e5351 00000006 0000000000000123 00000002 00000000 0000000000000007"
    frames = b"frames"
    expected = bytes.fromhex(header)
    expected += crc32(expected).to_bytes(4, "big")
    start = bytes.fromhex(head) + crc32(frames).to_bytes(4, "big")
    expected += start + crc32(start).to_bytes(4, "big") + frames
    assert path.logs()[0].name == "00000000000123.log"
    assert path.logs()[0].read_bytes() == expected


def test_files_are_rolled(tmp_path: Path) -> None:
    """A file is full at the limit; a larger record has one of its own; the header counts what was put before."""
    segment = make_segment(0, 10)
    path = DataPath(tmp_path, HEADER_BYTES + 2 * record_bytes(make_segment(10, 10)))
    path.commit_each(
        make_segment(0, 10), make_segment(10, 10), segment := make_segment(20), make_segment(21, 1, size=9999)
    )
    path.commit_each(make_segment(22))
    assert [log.name for log in path.logs()] == [f"{first:014x}.log" for first in (0, 20, 21, 22)]
    assert path.logs()[1].stat().st_size == HEADER_BYTES + record_bytes(segment)
    assert [decode_header(log.read_bytes()).put_total for log in path.logs()] == [0, 20, 21, 22]
    path.reopen()
    path.commit(make_segment(23, 1, size=9999))
    assert decode_header(path.logs()[-1].read_bytes()).put_total == 23
    assert path.sequences() == list(range(24))


def test_sequences_must_rise(tmp_path: Path) -> None:
    """A record that would not count later is not written."""
    path = DataPath(tmp_path)
    path.commit(make_segment(10, 5))
    assert "not above the end" in str(path.commit(make_segment(14)))
    assert path.commit(make_segment(15)) is None
    assert path.sequences() == list(range(10, 16))


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    """Who goes back to an older nsqtw is told, and loses nothing."""
    path = DataPath(tmp_path)
    path.commit(make_segment(0))
    path.close()
    data = bytearray(path.logs()[0].read_bytes())
    data[9] = 4
    data[60:64] = crc32(data[:60]).to_bytes(4, "big")
    path.logs()[0].write_bytes(data)
    with pytest.raises(BackendError, match="format version 4; this nsqtw knows 3"):
        path.open()
    assert path.logs()[0].read_bytes() == data


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """The data path has other inhabitants; no topic has a directory of such a name."""
    path = DataPath(tmp_path)
    path.commit(make_segment(0))
    path.close()
    others = ["positions.db", "nsqd.dat", "lock", "a b.deleted.0", ".deleted.0", "t.deleted.x", "t/README", "t/0.log"]
    for name in others:
        (tmp_path / name).write_text("keep me")
    (tmp_path / "empty").mkdir()
    (tmp_path / "%zz").mkdir()
    path.open()
    assert path.backend.topics() == ["t"]
    path.reopen()
    assert [(tmp_path / name).read_text() for name in others] == ["keep me"] * len(others)


def test_an_interrupted_deletion_is_finished(tmp_path: Path) -> None:
    """At the next open, whatever was left of the directory; a topic with a similar name is another matter."""
    path = DataPath(tmp_path)
    path.commit(make_segment(0))
    other = path.backend.queue("t.deleted.0")
    path.backend.commit([(other, [make_segment(0)])], False)
    path.close()
    (tmp_path / "t").rename(tmp_path / "t.deleted.0")
    (tmp_path / "t.deleted.7").mkdir()
    path.open()
    assert path.backend.topics() == ["t.deleted.0"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t%2Edeleted%2E0"]
    assert (path.queue.end, path.sequences()) == (0, [])


def test_stray_files_are_removed(tmp_path: Path) -> None:
    """Of a rewrite that was interrupted, of a spare file, of a log file that is gone."""
    path = DataPath(tmp_path)
    path.commit(make_segment(0))
    path.close()
    for name in ("00000000000000.log.tmp", "spare.tmp", "00000000000009.index"):
        (tmp_path / "t" / name).write_text("junk")
    path.open()
    assert path.names() == ["00000000000000.log"]
    assert path.sequences() == [0]


def test_files_stay_open_while_there_are_descriptors(tmp_path: Path) -> None:
    """However many topics write."""
    files = CountingFiles()
    backend = DiskBackend(str(tmp_path), 1000, ignore, files)
    queues = [backend.queue(f"t{number}") for number in range(KEPT_OPEN + 10)]
    for first in range(2):
        assert backend.commit([(queue, [make_segment(first)]) for queue in queues], True) == {}
        assert len(files.open_now) == len(queues)
    backend.close()
    assert files.open_now == set()


def test_few_files_are_open_when_descriptors_are_short(tmp_path: Path) -> None:
    """However many topics write and files are read."""
    files = CountingFiles()
    backend = DiskBackend(str(tmp_path), 100, ignore, files)
    queues = [backend.queue(f"t{number}") for number in range(40)]
    for first in range(10):
        assert backend.commit([(queue, [make_segment(first)]) for queue in queues], True) == {}
    assert len(files.open_now) > KEPT_OPEN
    backend.open_files.plenty_below = 0
    for first in range(10, 15):
        assert backend.commit([(queue, [make_segment(first)]) for queue in queues], True) == {}
    assert len(files.open_now) <= KEPT_OPEN
    for queue in queues:
        assert list(messages(read_all(queue))) == list(range(15))
        assert len(files.open_now) <= KEPT_OPEN
    backend.close()
    assert files.open_now == set()


class NumberedFiles(Files):
    """Opens nothing, and gives the lowest free number, as the system does."""

    def __init__(self) -> None:
        self.in_use: set[int] = set()
        self.highest = 0

    def open(self, path: str, *, create: bool = False, mode: int = FILE_MODE) -> int:
        fd = next(number for number in count() if number not in self.in_use)
        self.in_use.add(fd)
        self.highest = max(self.highest, fd)
        return fd

    def close(self, fd: int) -> None:
        self.in_use.remove(fd)


@pytest.mark.parametrize("limit", [64, 128, 256, 768, 1024, 4096])
def test_files_leave_descriptors_for_connections_however_many_there_are(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a broker of many topics would let nobody in, and at last have none for a file."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    descriptors = Descriptors()
    descriptors.close()
    files = NumberedFiles()
    open_files = OpenFiles(files)
    for number in range(4 * limit):
        open_files.open(LogFile(str(number), number, 0, 0))
    assert open_files.plenty_below <= files.highest < descriptors.for_connections


def test_when_descriptors_have_run_out_files_are_closed_and_the_call_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 20, as if others had taken the rest."""
    files = CountingFiles()
    backend = DiskBackend(str(tmp_path), 1000, ignore, files)
    queues = [backend.queue(f"t{number}") for number in range(60)]
    limit_descriptors(monkeypatch, files, 20)
    for first in range(2):
        assert backend.commit([(queue, [make_segment(first)]) for queue in queues], True) == {}
    for queue in queues:
        assert list(messages(read_all(queue))) == [0, 1]
    assert len(files.open_now) <= 20
    backend.close()
    assert files.open_now == set()
    files.open_now.update(range(1000, 1020))
    with pytest.raises(OSError, match="Too many open files"):
        backend.open_files.open(LogFile(str(tmp_path / "one"), 0, 0, 0), create=True)


def test_a_directory_is_synced_when_files_have_all_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last of them was opened just before."""
    files = CountingFiles()
    open_files = OpenFiles(files)
    limit_descriptors(monkeypatch, files, 3)
    for number in range(3):
        open_files.open(LogFile(str(tmp_path / str(number)), number, 0, 0), create=True)
    assert len(files.open_now) == 3
    files.sync_directory(str(tmp_path))
    assert files.open_now == set()


def limit_descriptors(monkeypatch: pytest.MonkeyPatch, files: CountingFiles, count: int) -> None:
    """Let `files` have no more than `count` open, as if others had taken the rest."""
    real = os.open

    def limited(path: str, flags: int, mode: int = 0o777) -> int:
        if len(files.open_now) >= count:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", limited)


def test_of_a_few_more_files_than_descriptors_that_are_used_in_turn_most_are_open() -> None:
    """If those used longest ago were closed, it would be none."""
    open_files = OpenFiles(NumberedFiles())
    open_files.plenty_below = 2 * KEPT_OPEN
    files = [LogFile(str(number), number, 0, 0) for number in range(2 * KEPT_OPEN + KEPT_OPEN // 2)]
    for _ in range(5):
        missed = [file for file in files if open_files.find(file) is None and open_files.open(file)]
    assert 0 < len(missed) < len(files) / 2


def test_those_that_stay_open_are_as_many_as_may_whatever_is_forgotten_meanwhile() -> None:
    numbers = NumberedFiles()
    open_files = OpenFiles(numbers)
    open_files.plenty_below = 0
    files = [LogFile(str(number), number, 0, 0) for number in range(4 * KEPT_OPEN)]
    for number, file in enumerate(files):
        open_files.open(file)
        if number % 3 == 0:
            open_files.forget(files[number // 2])
        found = [one for one in files if open_files.find(one) is not None]
        assert len(found) == len(numbers.in_use) <= KEPT_OPEN
    open_files.open(file)
    assert len(numbers.in_use) <= KEPT_OPEN
    for file in files:
        open_files.forget(file)
    assert not numbers.in_use


def test_the_tail_is_all_that_is_read_at_open(tmp_path: Path) -> None:
    """
    The index files say where it begins and where any sequence is. Missing or wrong they cost time: what is
    found is the same.
    """
    path = DataPath(tmp_path)
    for first in range(0, 12_000, 100):
        path.commit(*[make_segment(number, 1, size=1000) for number in range(first, first + 100)])
    index = tmp_path / "t" / "00000000000000.index"
    saved = index.read_bytes()
    noise = random.Random(1).randbytes(240)
    wrong = encode_entries([Entry(sequence, 100 + 1000 * sequence, 0) for sequence in range(1, 900, 50)])
    for content in (saved, saved[:-5], bytes(240), saved[:240] + noise, saved * 2, wrong, b""):
        index.write_bytes(content)
        files = CountingFiles()
        backend = DiskBackend(str(tmp_path), LARGE, path.report, files)
        queue = backend.queue("t")
        assert queue.end == 12_000
        assert queue.log.put_total == 12_000
        if content is saved:
            assert files.bytes_read < 6 << 20
        for start in random.Random(2).sample(range(12_000), 50):
            assert queue.read(start, 1)[0].first == start
    assert path.reports == []


def test_an_older_file_is_read_from_where_its_index_says(tmp_path: Path) -> None:
    """Also after a restart; with an index that is wrong, or without one, from the start of the file on."""
    path = DataPath(tmp_path, 1 << 20)
    for first in range(0, 3_000, 100):
        path.commit(*[make_segment(number, 1, size=1000) for number in range(first, first + 100)])
    path.close()
    assert len(path.logs()) == 4
    indexes = sorted(tmp_path.glob("t/*.index"))
    wrong = encode_entries([Entry(sequence, 100 + 1000 * sequence, 0) for sequence in range(1, 900, 50)])
    for content in (None, wrong, b""):
        for index in indexes:
            if content is not None:
                index.write_bytes(content)
        files = CountingFiles()
        backend = DiskBackend(str(tmp_path), 1 << 20, path.report, files)
        queue = backend.queue("t")
        before = files.bytes_read
        assert queue.read(900, 1)[0].first == 900
        if content is None:
            assert files.bytes_read - before < 450_000
        for start in random.Random(3).sample(range(3_000), 100):
            assert queue.read(start, 1)[0].first == start
    assert path.reports == []


def test_reads_while_files_are_rolled_recycled_and_rewritten(tmp_path: Path) -> None:
    """The reader may hold a list of files that is no longer true: it finds all it wants, and no damage."""
    path = DataPath(tmp_path, 3000)
    total = 3000
    keep = set(range(0, total, 97))
    passed = [0]
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for first in range(0, total, 3):
                path.commit_each(make_segment(first, 3, size=100))
                path.queue.trim(passed[0], [sequence for sequence in sorted(keep) if sequence < passed[0]])
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    choice = random.Random(4)
    while passed[0] < total and not failures:
        segments = path.queue.read(passed[0], choice.choice((1, 500, 5000)))
        if segments:
            assert segments[0].first <= passed[0]
            passed[0] = segments[-1].end
        wanted = choice.choice(sorted(keep))
        if wanted < passed[0]:
            found = path.queue.read(wanted, 1)[0]
            assert found.first <= wanted < found.end
    writer.join()
    assert failures == []
    assert path.reports == []
    assert keep <= set(path.sequences())
