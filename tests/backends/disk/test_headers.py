"""Headers and channels in log files: the bytes, the versions of files, and what damage costs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from nsqtw.backends.disk.damage import examine
from nsqtw.backends.disk.format import (
    HEADER_BYTES,
    HIGHEST,
    RECORD_BYTES,
    Entry,
    decode_header,
    encode_header,
    encode_record,
)
from nsqtw.backends.disk.open_files import Descriptor
from nsqtw.backends.disk.scan import Scan
from nsqtw.backends.files import Files
from nsqtw.backends.header_block import TRAILER_BYTES, encode_block
from nsqtw.core.segment import Segment
from nsqtw.testing.contracts import (
    headers,
    make_segment,
    make_segment_with_headers,
    messages,
    read_all,
)
from tests.backends.data_path import DataPath, spoil

NONE = ("", b"")


def versions(path: DataPath) -> list[int]:
    """The format version of each file."""
    found = [decode_header(log.read_bytes()) for log in path.logs()]
    return [header.version if header is not None else 0 for header in found]


def test_the_bytes_of_a_file_with_headers(tmp_path: Path) -> None:
    """Format version 3: a file written today is read by every later version."""
    path = DataPath(tmp_path)
    one = Segment(0x123, 2, 7, b"frames", [b"", b"\x01a\x00\x01b"])
    other = Segment(0x125, 1, 0, b"frame", None, "channel")
    path.commit_each(one, other, Segment(0x126, 1, 0, b"plain"))
    header = bytes.fromhex("4e535154574c4f47 0003 0000 00000000 0000000000000123 0000000000000000" + 28 * "00")
    expected = header + crc32(header).to_bytes(4, "big")
    for magic, segment in (("48", one), ("44", other)):
        payload = segment.frames + encode_block(segment)
        head = bytes.fromhex(f"f54e53{magic}") + len(payload).to_bytes(4, "big")
        head += segment.first.to_bytes(8, "big") + segment.count.to_bytes(4, "big") + bytes(4)
        head += segment.delay_ms.to_bytes(8, "big") + crc32(payload).to_bytes(4, "big")
        expected += head + crc32(head).to_bytes(4, "big") + payload
    plain = bytes.fromhex("f54e5351 00000005 0000000000000126 00000001 00000000 0000000000000000")
    plain += crc32(b"plain").to_bytes(4, "big")
    expected += plain + crc32(plain).to_bytes(4, "big") + b"plain"
    assert path.logs()[0].read_bytes() == expected


def test_files_without_headers_are_what_they_were(tmp_path: Path) -> None:
    """Byte for byte what an nsqtw wrote that knew no headers: it can take the data path back."""
    path = DataPath(tmp_path, 60_000)
    path.commit_each(make_segment(0), make_segment(1, 200, size=300), make_segment(300, 2, delay_ms=5))
    path.commit(make_segment(400, 3), make_segment(403, 90, size=400), make_segment(500, 1, size=90_000))
    path.queue.trim(300, [7])
    path.close()
    digest = sha256(b"".join(log.name.encode() + log.read_bytes() for log in path.logs())).hexdigest()
    assert digest == "2a0d1543edeaf22bc40676a2eb133a7778132743d1020e03bbc7faed3590677d"


def test_the_first_headers_begin_a_new_file(tmp_path: Path) -> None:
    """What is in the old one stays readable for an older nsqtw. From there on files have the new version."""
    path = DataPath(tmp_path, 5000)
    path.commit(make_segment(0, 3), make_segment(3, 3))
    before = path.logs()[0].read_bytes()
    path.commit(make_segment(6), make_segment_with_headers(7, 2), make_segment(9))
    assert versions(path) == [2, 3]
    assert path.logs()[0].read_bytes().startswith(before)
    path.commit(make_segment(20, 1, size=6000), make_segment(21))
    path.reopen()
    path.commit(make_segment_with_headers(30, 1, channel="c"))
    assert versions(path) == [2, 3, 3, 3]
    assert path.sequences() == [*range(10), 20, 21, 30]
    assert headers(read_all(path.queue, 9)) == {
        9: NONE,
        20: NONE,
        21: NONE,
        **headers([make_segment_with_headers(30, 1, channel="c")]),
    }


def test_a_refused_commit_leaves_the_old_file_as_the_last(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    path.commit(make_segment(0, 3))
    assert path.commit(make_segment_with_headers(5, 2), make_segment(1)) is not None
    assert versions(path) == [2]
    path.commit(make_segment(10))
    assert versions(path) == [2]
    assert path.sequences() == [0, 1, 2, 10]


def test_a_log_without_files_begins_with_the_old_version(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    path.commit(make_segment_with_headers(0, 2, size=200_000))
    for _ in range(3):
        path.queue.trim(2, [])
    assert path.logs() == []
    path.commit(make_segment(5))
    assert versions(path) == [2]


def test_a_restart_frees_a_small_file_with_headers(tmp_path: Path) -> None:
    """This is the way back to an older nsqtw; a file without headers, or with a wanted message, is kept."""
    path = DataPath(tmp_path)
    path.commit(make_segment_with_headers(0, 2))
    for _ in range(3):
        path.queue.trim(2, [])
    assert versions(path) == [3]
    path.reopen()
    assert path.queue.may_free
    path.queue.trim(2, [])
    assert path.queue.may_free_later
    path.queue.trim(2, [])
    assert path.logs() == []
    path.commit(make_segment(5))
    path.reopen()
    for _ in range(3):
        path.queue.trim(6, [])
    assert versions(path) == [2]


def test_a_stop_frees_a_small_file_with_headers(tmp_path: Path) -> None:
    """The next process may be an older nsqtw; a file without headers, or with an unread or wanted message, is kept."""
    path = DataPath(tmp_path)
    path.commit(make_segment_with_headers(0, 2))
    path.queue.trim(2, [])
    assert not path.queue.may_free and versions(path) == [3]
    assert path.queue.begin_stop()
    assert path.queue.may_free
    path.queue.trim(1, [])
    path.queue.trim(2, [1])
    assert versions(path) == [3]
    path.queue.trim(2, [])
    assert path.logs() == [] and not path.queue.begin_stop()
    path.commit(make_segment_with_headers(3, 2))
    path.queue.trim(5, [])
    assert path.logs() == [], "there is no other trim"
    path.commit(make_segment(5))
    assert not path.queue.begin_stop()
    path.queue.trim(6, [])
    assert versions(path) == [2]


def test_the_version_outlives_the_last_file(tmp_path: Path) -> None:
    """A file with a wanted message is all that is left, and no process has looked at its header."""
    path = DataPath(tmp_path, 5000)
    path.commit(make_segment_with_headers(0, 20, size=150), make_segment(50, 1, size=200_000))
    path.reopen()
    for _ in range(3):
        path.queue.trim(51, [1])
    assert path.sequences() == [1]
    path.commit(make_segment(60))
    assert versions(path) == [3, 3]
    assert headers(read_all(path.queue)) == {1: headers([make_segment_with_headers(1)])[1], 60: NONE}


class Content(Files):
    """One file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, fd: int, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def close(self, fd: int) -> None:
        pass


def left(data: bytes) -> list[Segment]:
    """What a start keeps of a file."""
    descriptor = Descriptor(Content(data), 0)
    scan = Scan(descriptor, Entry(0, HEADER_BYTES, 0), len(data), HIGHEST)
    found: list[Segment] = []
    while scan.position < scan.size:
        head = scan.head()
        segment = scan.segment(head) if head is not None else None
        if head is not None and segment is not None:
            found.append(segment)
            scan.skip(head)
        else:
            found += examine(descriptor, scan, ()).segments
    return found


SMALL = [
    make_segment(0, 2),
    make_segment_with_headers(2, 3, delay_ms=4),
    make_segment_with_headers(5, 2, channel="c"),
    make_segment_with_headers(7),
]
"""Records without a block table."""


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("change", [1, 0x5B])
def test_damage_of_any_byte_never_gives_a_message_what_it_had_not(change: int, is_last: bool) -> None:
    """
    Damage of headers costs the headers. That of frames, of the name of a channel or of a trailer, without which nothing
    proves the frames, costs the messages.
    """
    whole = bytearray(encode_header(0, 0, 3))
    after = [] if is_last else [make_segment(100)]
    written, beside = messages([*SMALL, *after]), headers([*SMALL, *after])
    records = [encode_record(segment) for segment in [*SMALL, *after]]
    whole += b"".join(head + payload for head, payload in records)
    at = HEADER_BYTES
    for segment, (head, payload) in zip(SMALL, records, strict=False):
        begin = at + len(head)
        frames_end = begin + len(segment.frames)
        trailer = max(frames_end, begin + len(payload) - TRAILER_BYTES - len(segment.channel))
        own = set(range(segment.first, segment.end))
        for position in range(at, begin + len(payload)):
            damaged = bytearray(whole)
            damaged[position] ^= change
            found = left(bytes(damaged))
            assert messages(found).items() <= written.items()
            lost = written.keys() - messages(found).keys()
            found_beside = headers(found)
            assert {n: found_beside[n] for n in found_beside.keys() - own}.items() <= beside.items()
            if frames_end <= position < trailer:
                assert not lost
                assert {found_beside[n] for n in own} == {(segment.channel, b"")}
            else:
                assert lost == own
        at = begin + len(payload)


def directed(path: DataPath) -> dict[int, str]:
    found: dict[int, str] = {}
    place = 0
    while place < path.queue.end:
        runs, place = path.queue.directed(place)
        found |= {number: channel for first, end, channel in runs for number in range(first, end)}
    return found


def read_directed(path: DataPath) -> dict[int, str]:
    """The same from what a read gives."""
    return {n: s.channel for s in read_all(path.queue, 0) if s.channel for n in range(s.first, s.end)}


@pytest.mark.parametrize("heads", [1, 2, 250])
def test_what_is_for_one_channel_is_found_by_the_heads(
    tmp_path: Path, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several files, after a start, and when some of it was trimmed."""
    monkeypatch.setattr("nsqtw.backends.disk.reader._HEADS", heads)
    path = DataPath(tmp_path, 2000)
    path.commit_each(*[make_segment(number, 1, size=300) for number in range(20)])
    for first in range(20, 200, 10):
        channel = ("", "one", "two")[first // 10 % 3]
        path.commit(make_segment_with_headers(first, 7, channel=channel), make_segment(first + 7, 2))
    expected = read_directed(path)
    assert len(expected) == 12 * 7
    assert directed(path) == expected
    path.reopen()
    assert directed(path) == expected
    path.queue.trim(150, iter([51, 53, 55, 80, 111]))
    assert directed(path) == read_directed(path)
    assert {51, 80, 111, 170} <= directed(path).keys()


def damaged_copies(whole: DataPath) -> Iterator[DataPath]:
    """Copies of a path, which is closed, each with damage at another place of its second log file."""
    whole.close()
    log = whole.logs()[1]
    for position in range(HEADER_BYTES, log.stat().st_size, 37):
        directory = whole.directory.parent / str(position)
        shutil.copytree(whole.directory, directory)
        spoil(directory / "t" / log.name, position)
        path = DataPath(directory, 900)
        yield path
        path.close()


def test_what_is_for_one_channel_is_found_beside_damage(tmp_path: Path) -> None:
    whole = DataPath(tmp_path / "whole", 900)
    whole.commit_each(*SMALL, make_segment_with_headers(100, 1, size=2000), make_segment_with_headers(101, channel="d"))
    for path in damaged_copies(whole):
        assert directed(path) == read_directed(path)


def test_a_repair_keeps_what_a_read_found(tmp_path: Path) -> None:
    """Some places of a file that is the last or is followed by another one."""
    whole = DataPath(tmp_path / "whole", 900)
    whole.commit_each(*SMALL, make_segment(100, 1, size=2000), make_segment(101))
    assert versions(whole) == [2, 3, 3, 3]
    for path in damaged_copies(whole):
        found = read_all(path.queue)
        path.queue.trim(0, [])
        assert headers(read_all(path.queue)) == headers(found)
        path.reopen()
        assert headers(read_all(path.queue)) == headers(found)
        assert messages(read_all(path.queue)) == messages(found)
        assert versions(path) == [2, 3, 3, 3]


def test_a_damaged_page_of_a_batch_with_headers(tmp_path: Path) -> None:
    """The messages of its blocks are lost or without headers; no message gets what it had not."""
    chance = Random(7)
    for channel in ("", "c"):
        segment = make_segment_with_headers(0, 300, size=100, header_bytes=100, channel=channel)
        whole = DataPath(tmp_path / f"whole{channel}")
        whole.commit(segment, make_segment(400))
        whole.close()
        log = whole.logs()[0]
        data = log.read_bytes()
        frames_end = HEADER_BYTES + RECORD_BYTES + 4 * (len(data) // 16384) + len(segment.frames)
        written, beside = messages([segment]), headers([segment])
        kept_headers = lost_headers = lost_all = 0
        for start in range(0, len(data), 2048):
            directory = tmp_path / f"damaged{channel}{start}"
            shutil.copytree(whole.directory, directory)
            noise = data[:start] + chance.randbytes(min(1024, len(data) - start)) + data[start + 1024 :]
            (directory / "t" / log.name).write_bytes(noise)
            path = DataPath(directory)
            segments = read_all(path.queue)
            path.close()
            found = {sequence: frame for sequence, frame in messages(segments).items() if sequence < 300}
            assert found.items() <= written.items()
            has_headers = all(headers(segments)[sequence] == beside[sequence] for sequence in found)
            assert has_headers or all(headers(segments)[sequence] == (channel, b"") for sequence in found)
            if frames_end <= start < len(data) - 3000:
                assert len(found) == 300 and not has_headers
                lost_headers += 1
            elif 1024 <= start < frames_end - 1024:
                assert 0 < len(found) < 300 and has_headers
                kept_headers += 1
            lost_all += not found
        assert kept_headers > 10 and lost_headers > 5 and 1 <= lost_all <= 4


def test_damaged_headers_are_reported(tmp_path: Path) -> None:
    """When a read comes by, once; and they are counted as damaged, not as lost."""
    path = DataPath(tmp_path)
    segment = make_segment_with_headers(1, 4)
    path.commit(segment)
    path.commit(make_segment(5, 1))
    spoil(path.logs()[0], HEADER_BYTES + RECORD_BYTES + len(segment.frames) + 9)
    found = read_all(path.queue)
    assert headers(found) == dict.fromkeys(range(1, 6), NONE)
    assert messages(found) == messages([segment, make_segment(5)])
    text = "the headers are damaged, and the messages are kept without them; no message is lost"
    assert path.notes == [(f"{path.logs()[0]} at {HEADER_BYTES}", text)]
    assert path.backend.damage.total().shown() == {"lost_count": 0, "damaged_count": 4, "set_aside_count": 0}
    path.close()
    assert path.notes[1][1].startswith(
        "damaged records: 0 lost, 4 of their messages kept, 4 of these without their headers;"
    )
