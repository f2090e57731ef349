"""What a log can be found like at a start or a read, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES, RECORD_BYTES, encode_header
from nsqtw.backends.disk.scan import BLOCK_BYTES
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError
from nsqtw.testing.contracts import make_segment
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath, record, record_bytes, spoil


@pytest.mark.parametrize("rest", [None, 0x00, 0xFF])
def test_a_record_torn_at_any_byte_is_cut_off(tmp_path: Path, rest: int | None) -> None:
    """Nothing before it is touched, nothing is reported, and the next one takes its place."""
    data = encode_header(0, 0) + record(make_segment(0, 3))
    torn = record(make_segment(3, 2))
    for length in range(len(torn)):
        path = DataPath(tmp_path / str(length))
        (path.directory / "t").mkdir()
        tail = b"" if rest is None else bytes([rest]) * (len(torn) - length)
        (path.directory / "t" / "00000000000000.log").write_bytes(data + torn[:length] + tail)
        path.open()
        assert (path.sequences(), path.queue.end) == ([0, 1, 2], 3)
        path.commit(make_segment(9))
        path.reopen()
        assert path.sequences() == [0, 1, 2, 9]
        assert path.reports == []
        path.close()


def test_damage_anywhere_in_a_record_costs_that_record(tmp_path: Path) -> None:
    """It is reported with its place and its sequences, once; those before and behind it are there."""
    segments = [make_segment(0, 2), make_segment(2, 3), make_segment(100, 2)]
    start = HEADER_BYTES + record_bytes(segments[0])
    for position in range(start, start + record_bytes(segments[1])):
        path = DataPath(tmp_path / str(position))
        path.commit_each(*segments)
        spoil(path.logs()[0], position)
        assert path.sequences() == path.sequences() == [0, 1, 100, 101]
        path.reopen()
        assert path.sequences() == path.sequences() == [0, 1, 100, 101]
        in_head = position < start + RECORD_BYTES
        assert path.damaged() == [(2, 99 if in_head else 4)]
        assert {where for _, where, _, _, _ in path.reports} == {f"{path.logs()[0]} at {start}"}
        path.close()


def test_damage_at_the_end_of_an_older_file_is_no_torn_tail(tmp_path: Path) -> None:
    """The next file was begun, so this record was complete: it is reported when it is read."""
    path = DataPath(tmp_path, 450)
    path.commit_each(*[make_segment(number, 1, size=100) for number in range(6)])
    path.close()
    assert len(path.logs()) == 3
    spoil(path.logs()[0], path.logs()[0].stat().st_size - 1)
    spoil(path.logs()[1], HEADER_BYTES + record_bytes(make_segment(2, 1, size=100)))
    path.open()
    assert path.reports == []
    assert path.sequences() == path.sequences() == [0, 2, 4, 5]
    assert path.damaged() == [(1, 1), (3, 3)]


def test_several_damaged_records(tmp_path: Path) -> None:
    """Wherever they are, no good one is lost; neighbours are reported together."""
    path = DataPath(tmp_path)
    segments = [make_segment(number, 1, size=50) for number in range(20)]
    path.commit_each(*segments)
    for number in (0, 5, 6, 7, 12):
        spoil(path.logs()[0], HEADER_BYTES + number * record_bytes(segments[0]) + (3 if number == 6 else RECORD_BYTES))
    kept = [number for number in range(20) if number not in (0, 5, 6, 7, 12)]
    assert path.sequences() == kept
    assert path.damaged() == [(0, 0), (5, 5), (6, 7), (12, 12)]
    path.reopen()
    assert path.sequences() == kept


@pytest.mark.parametrize("missing", range(6))
def test_the_next_record_starts_at_the_border_of_a_block(tmp_path: Path, missing: int) -> None:
    """The search reads blocks; what it looks for may be cut by their ends."""
    for block in (BLOCK_BYTES, 4 * BLOCK_BYTES):
        path = DataPath(tmp_path / str(block))
        bodies = block - missing - record_bytes(make_segment(0, 1, size=0))
        path.commit_each(make_segment(0, 1, size=bodies), make_segment(1))
        spoil(path.logs()[0], HEADER_BYTES)
        assert [segment.first for segment in path.queue.read(0, 1)] == [1]
        path.reopen()
        assert path.sequences() == [1]
        path.close()


def test_a_damaged_file_header_costs_nothing(tmp_path: Path) -> None:
    """The name says the first sequence, and the records speak for themselves."""
    path = DataPath(tmp_path, 450)
    path.commit_each(*[make_segment(number, 1, size=100) for number in range(6)])
    path.close()
    for log in path.logs():
        spoil(log, 20)
    path.open()
    assert path.sequences() == list(range(6))
    assert path.reports == []


def test_a_missing_file(tmp_path: Path) -> None:
    """Gaps are normal, so a start does not miss it; the running broker does. The others are read."""
    path = DataPath(tmp_path, 450)
    path.commit_each(*[make_segment(number, 1, size=100) for number in range(8)])
    path.close()
    path.logs()[0].unlink()
    path.open()
    assert path.queue.first == 2
    path.logs()[1].unlink()
    assert path.sequences() == path.sequences() == [2, 3, 6, 7]
    assert [(first, last, why) for _, _, first, last, why in path.reports] == [(4, 5, "the file is missing")]


def test_a_file_cut_short_under_the_running_broker(tmp_path: Path) -> None:
    """What is no longer there is reported, once."""
    path = DataPath(tmp_path)
    segments = [make_segment(number, 1, size=100) for number in range(4)]
    path.commit_each(*segments)
    with open(path.logs()[0], "r+b") as file:
        file.truncate(HEADER_BYTES + 2 * record_bytes(segments[0]) + 10)
    assert path.sequences() == path.sequences() == [0, 1]
    assert path.damaged() == [(2, 3)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"NSQTW",
        encode_header(7, 0),
        encode_header(7, 0) + bytes(999),
        encode_header(1, 0) + record(make_segment(1)),
    ],
    ids=["nothing", "part of a header", "a header", "zeros", "a recycled file"],
)
def test_a_last_file_without_records_is_removed(tmp_path: Path, content: bytes) -> None:
    """It is what a crash leaves of a roll."""
    path = DataPath(tmp_path)
    path.commit(make_segment(0, 3))
    path.close()
    (tmp_path / "t" / "00000000000007.log").write_bytes(content)
    path.open()
    assert (path.queue.end, path.sequences()) == (3, [0, 1, 2])
    assert len(path.logs()) == 1
    path.commit(make_segment(7))
    path.reopen()
    assert path.sequences() == [0, 1, 2, 7]
    assert path.reports == []


def test_only_files_without_records(tmp_path: Path) -> None:
    """A topic whose first commit was interrupted is new."""
    path = DataPath(tmp_path)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "00000000000007.log").write_bytes(b"NSQTW")
    path.open()
    assert (path.queue.first, path.queue.end, path.sequences()) == (0, 0, [])


def test_stale_content_ends_a_log(tmp_path: Path) -> None:
    """Whole records of an earlier time behind the end, at any distance, are no records of this file."""
    old = b"".join(record(make_segment(number, 1, size=100)) for number in range(10))
    data = encode_header(50, 0) + record(make_segment(50, 2))
    for cut in (0, 1, 40, 50, record_bytes(make_segment(0, 1, size=100))):
        path = DataPath(tmp_path / str(cut))
        (path.directory / "t").mkdir()
        (path.directory / "t" / f"{50:014x}.log").write_bytes(data + old[cut:])
        path.open()
        assert path.sequences() == [50, 51]
        path.commit(make_segment(60))
        path.reopen()
        assert path.sequences() == [50, 51, 60]
        assert path.reports == []
        path.close()


def test_stale_content_at_the_end_of_an_older_file(tmp_path: Path) -> None:
    """Nothing is missing when a sealed file has a next one, so nothing is reported."""
    path = DataPath(tmp_path)
    path.commit(make_segment(50, 2))
    path.close()
    with open(path.logs()[0], "ab") as file:
        file.write(record(make_segment(3)) + record(make_segment(99)))
    (tmp_path / "t" / f"{60:014x}.log").write_bytes(encode_header(60, 2) + record(make_segment(60)))
    path.open()
    assert path.sequences() == [50, 51, 60]
    assert path.reports == []


def test_bodies_that_look_like_records_are_not_taken_for_some(tmp_path: Path) -> None:
    """What a client wrote is not searched as long as the head before it is whole."""
    path = DataPath(tmp_path)
    evil = Segment(5, 1, 0, record(make_segment(1000)) + record(make_segment(6)))
    path.commit_each(make_segment(0, 2), evil, make_segment(10))
    spoil(path.logs()[0], HEADER_BYTES + record_bytes(make_segment(0, 2)) + record_bytes(evil) - 1)
    path.reopen()
    assert path.sequences() == [0, 1, 10]
    assert path.damaged() == [(5, 5)]


def test_a_medium_that_cannot_be_read(tmp_path: Path) -> None:
    """It is an error, not damage: the same read succeeds later. A topic that cannot be opened is an error too."""
    files = FaultyFiles(str(tmp_path))
    path = DataPath(tmp_path, files=files)
    path.commit(make_segment(0, 3))
    files.fail("read", 5)
    with pytest.raises(BackendError, match="read of topic t: input/output error"):
        path.queue.read(0, 1000)
    assert path.sequences() == [0, 1, 2]
    path.close()
    files.fail("read", 5)
    with pytest.raises(BackendError, match="open of topic t: input/output error"):
        path.open()
    path.open()
    assert path.sequences() == [0, 1, 2]
    assert path.reports == []


def test_a_few_bytes_too_many_at_the_end_of_an_older_file(tmp_path: Path) -> None:
    """Too few for a record. Sequences follow without a gap, so nothing can be missing."""
    path = DataPath(tmp_path, 450)
    path.commit_each(*[make_segment(number, 1, size=100) for number in range(6)])
    path.close()
    with open(path.logs()[0], "ab") as file:
        file.write(b"junk")
    path.open()
    assert path.sequences() == list(range(6))
    assert path.reports == []
