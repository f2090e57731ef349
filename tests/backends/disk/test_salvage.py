"""
Damage costs the damaged messages and not their batch: what is kept of a log file with one flipped bit, or one bad page,
anywhere in it; that it is said once; and that nothing is removed that is not set aside.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.disk.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECORD_BYTES,
    blocks_of,
    decode_head,
    encode_head,
    encode_header,
)
from nsqtw.core.segment import Segment, encode
from nsqtw.testing.contracts import PUBLISHED_NS, messages, read_all
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath

PAGE = 4096
LIMIT = 300_000
"""Bytes of a log file: there are three or four."""


def batches() -> list[Segment]:
    """Many small ones, some of several blocks, deferred ones, and bodies of different sizes."""
    chance = random.Random(20)
    segments, first = [], 1000
    for count, size, delay_ms in (
        *[(1, 40, 0)] * 20,
        (500, 200, 0),
        (100, 1024, 0),
        (3, 9, 0),
        *[(2, 60, 0)] * 30,
        (250, 90, 5000),
        (1, 50_000, 0),
        (400, 300, 0),
        *[(5, 700, 0)] * 10,
        (30, 8000, 0),
        (1000, 100, 0),
        *[(1, 10, 0)] * 5,
    ):
        bodies = [chance.randbytes(max(1, size + (chance.randrange(9) if size != 200 else 0))) for _ in range(count)]
        segments.append(encode(bodies, first, 1, PUBLISHED_NS, delay_ms))
        first += count + (5 if size == 9 else 0)
    return segments


SEGMENTS = batches()
WRITTEN = messages(SEGMENTS)
END = SEGMENTS[-1].end


class Whole:
    """A data path without damage, and where in its files which message is."""

    def __init__(self, directory: Path) -> None:
        path = DataPath(directory, LIMIT)
        path.commit_each(*SEGMENTS)
        path.close()
        assert path.reports == []
        self.directory = directory
        self.logs = path.logs()
        self.sizes = [log.stat().st_size for log in self.logs]
        self.records = [list(records(log.read_bytes())) for log in self.logs]


def records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The position of each record, and the first sequence and one past the last in it."""
    position = HEADER_BYTES
    while position < len(data):
        head = decode_head(data, position)
        assert head is not None
        yield position, head.first, head.end
        position += head.size


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole") / "data")


class Started:
    """The backend on a damaged copy, which knows what positions.db knows."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[tuple[str, int, int, str]] = []
        self.backend = DiskBackend(str(directory), LIMIT, self.report)
        self.backend.expect({"t": END})
        self.queue = self.backend.queue("t")

    def report(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        self.lines.append((where, first, last, why))

    def read(self) -> dict[int, tuple[int, bytes]]:
        return messages(read_all(self.queue))

    def counts(self) -> dict[str, int]:
        return self.backend.damage.total().shown()


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("t/*.log")}


def check(whole: Whole, directory: Path, number: int, may_be_lost: set[int]) -> int:
    """
    Start on a copy with damage in one file, twice. Nothing is delivered that was not written, nothing twice, nothing in
    another order (`messages` looks at that), at most what may be is lost, and the second start has nothing to say.
    Returns how many messages are lost.
    """
    damaged = files_of(directory)
    name = whole.logs[number].name
    is_damaged = damaged[name] != whole.logs[number].read_bytes()
    first = Started(directory)
    found = first.read()
    lost = WRITTEN.keys() - found.keys()
    assert found.items() <= WRITTEN.items()
    assert lost <= may_be_lost
    counts = first.counts()
    is_shorter = first.queue.end < END  # then core counts what is missing at the end (test_recovery)
    assert counts["lost_count"] >= len(lost) or is_shorter
    assert counts["damaged_count"] >= counts["lost_count"]
    first.backend.close()
    kept = [path for path in directory.glob("damaged.d/*/t/*") if path.read_bytes() in damaged.values()]
    if lost:
        assert first.lines
        names = [path.name for path in directory.glob("damaged.d/*/t/*")]
        assert [path.name for path in kept] == [name] or (is_shorter and names[0].startswith(name))
    if first.lines:
        assert is_damaged
        assert any(first.counts().values())
    assert damaged.keys() == files_of(directory).keys()
    second = Started(directory)
    assert second.read() == found
    assert second.lines == []
    second.backend.close()
    return len(lost)


places = st.tuples(st.integers(0, 3), st.floats(0, 1, exclude_max=True))


def in_pages(whole: Whole, number: int, start: int, stop: int) -> set[int]:
    """
    The messages that damage of these bytes may cost: those with a byte in a damaged block, and all of a record whose
    head or table is hit.
    """
    data = whole.logs[number].read_bytes()
    lost: set[int] = set()
    for position, first, end in whole.records[number]:
        head = decode_head(data, position)
        assert head is not None
        begin = position + head.size - head.length
        if position + head.size <= start or position >= stop:
            continue
        if position < stop and start < begin:
            lost |= {*range(first, end)}
            continue
        segment = Segment(first, end - first, 0, data[begin : position + head.size])
        edge = begin
        for block_end in blocks_of(head):
            if edge < stop and start < begin + block_end:
                for index in range(segment.count):
                    low, high = begin + segment.offsets[index], begin + segment.offsets[index + 1]
                    if low < begin + block_end and edge < high:
                        lost.add(first + index)
            edge = begin + block_end
    return lost


@given(
    entry_at=places,
    content=st.sampled_from(["a flipped bit", "zeros", "ones", "noise"]),
    size=st.sampled_from([1, 2, 512, PAGE]),
)
def test_a_bad_page_costs_the_messages_of_its_block(
    whole: Whole, tmp_path_factory: pytest.TempPathFactory, entry_at: tuple[int, float], content: str, size: int
) -> None:
    size = 1 if content == "a flipped bit" else size
    directory = tmp_path_factory.mktemp("page") / "data"
    shutil.copytree(whole.directory, directory)
    number = entry_at[0] % len(whole.logs)
    log = directory / "t" / whole.logs[number].name
    data = bytearray(log.read_bytes())
    start = int(entry_at[1] * len(data)) // size * size
    stop = min(start + size, len(data))
    noise = random.Random(start).randbytes(size)
    bad = {"zeros": bytes(size), "ones": b"\xff" * size, "noise": noise, "a flipped bit": bytes([data[start] ^ 4])}
    data[start:stop] = bad[content][: stop - start]
    log.write_bytes(data)
    check(whole, directory, number, in_pages(whole, number, start, stop))
    shutil.rmtree(directory)


def test_a_page_is_in_one_block_of_its_record(whole: Whole) -> None:
    """The borders of blocks are multiples of their size in the file."""
    count = 0
    for log, found in zip(whole.logs, whole.records, strict=True):
        data = log.read_bytes()
        for position, _, _ in found:
            head = decode_head(data, position)
            assert head is not None
            begin = position + head.size - head.length
            for end in blocks_of(head)[:-1]:
                count += 1
                assert min((begin + end) % BLOCK_BYTES, -(begin + end) % BLOCK_BYTES) in (0, 4)
    assert count > 20


def test_a_thousand_messages_with_one_flipped_bit(tmp_path: Path) -> None:
    """One batch, a clean stop, one bit of one body: the messages of its block are lost, counted and set aside."""
    bodies = [b"%04d" % number + b"x" * 96 for number in range(1000)]
    path = DataPath(tmp_path)
    path.commit(encode(bodies, 1, 1, PUBLISHED_NS), durable=True)
    path.close()
    data = bytearray(path.logs()[0].read_bytes())
    data[50_000] ^= 4
    path.logs()[0].write_bytes(data)
    started = Started(tmp_path)
    found = started.read()
    lost = [number for number in range(1, 1001) if number not in found]
    assert lost == [*range(lost[0], lost[-1] + 1)]
    assert 50_000 // 134 in lost and len(lost) <= BLOCK_BYTES // 134 + 2
    assert [frame[34:] for _, frame in found.values()] == [bodies[number - 1] for number in found]
    kept = tmp_path / "damaged.d/1/t" / path.logs()[0].name
    assert kept.read_bytes() == data
    text = f"damaged records: {len(lost)} lost, {len(found)} of their messages kept; the file as it was is {kept}"
    assert started.lines == [(str(path.logs()[0]), lost[0], lost[-1], text)]
    assert started.counts() == dict.fromkeys(["lost_count", "damaged_count", "set_aside_count"], len(lost))
    assert started.backend.damage.files == [str(kept.relative_to(tmp_path))]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_file_of_version_1_is_salvaged_as_well_as_its_bytes_allow(tmp_path: Path, is_last: bool) -> None:
    """Damage costs the batch, which is set aside."""
    segments = [encode([b"%d" % number * 30 for number in range(300)], first, 1, 7) for first in (1, 301, 601)]
    header = bytearray(encode_header(1, 0)[:60])
    header[9] = 1
    data = bytearray(header + checksum(header) + b"".join(encode_head(s) + s.frames for s in segments))
    at = HEADER_BYTES + RECORD_BYTES * 2 + len(segments[0].frames) + 999
    data[at : at + 9] = bytes(9)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / f"{1:014x}.log").write_bytes(data)
    path = DataPath(tmp_path)
    if is_last:
        assert path.sequences() == [*range(1, 301), *range(601, 901)]
    else:
        path.commit(encode([b"next"], 2000, 1, 7))
        assert path.sequences() == [*range(1, 301), *range(601, 901), 2000]
    assert path.damaged() == [(301, 600)]
    path.reopen()
    assert path.sequences()[:600] == [*range(1, 301), *range(601, 901)]
    assert path.damaged() == [(301, 600)]


def checksum(data: bytes) -> bytes:
    from zlib import crc32

    return crc32(data).to_bytes(4, "big")


def test_a_file_of_version_1_is_not_appended_to(tmp_path: Path) -> None:
    """An older nsqtw would take tables for damage: it refuses files of this version."""
    header = bytearray(encode_header(1, 0)[:60])
    header[9] = 1
    (tmp_path / "t").mkdir()
    segment = encode([b"old"], 1, 1, 7)
    (tmp_path / "t" / f"{1:014x}.log").write_bytes(
        bytes(header) + checksum(header) + encode_head(segment) + segment.frames
    )
    path = DataPath(tmp_path)
    path.commit(encode([b"new"] * 2, 2, 1, 7))
    assert [log.name for log in path.logs()] == [f"{1:014x}.log", f"{2:014x}.log"]
    path.reopen()
    assert path.sequences() == [1, 2, 3]
    assert path.reports == []


def test_damage_met_by_a_read_is_mended_while_the_broker_runs(tmp_path: Path) -> None:
    """The file that grows is left for a new one; then it is rewritten by the next trim, and set aside."""
    path = DataPath(tmp_path)
    path.commit_each(*[encode([b"%d" % first * 20] * 9, first, 1, 7) for first in range(0, 90, 9)])
    log = path.logs()[0]
    data = bytearray(log.read_bytes())
    entry_at = HEADER_BYTES + 4 * (len(data) - HEADER_BYTES) // 10 + RECORD_BYTES + 100
    data[entry_at] ^= 0x81
    log.write_bytes(data)
    lost = {*range(90)} - {*path.sequences()}
    assert path.damaged() == [(min(lost), max(lost))]
    assert log.read_bytes() == data
    path.commit(encode([b"more"], 90, 1, 7))
    path.queue.trim(0, [])
    assert log.read_bytes() != data
    assert (tmp_path / "damaged.d/1/t" / log.name).read_bytes() == data
    assert {*range(91)} - {*path.sequences()} == lost
    path.reopen()
    assert {*range(91)} - {*path.sequences()} == lost
    assert len(path.reports) == 1


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_rewrite_may_be_interrupted_at_any_step(tmp_path: Path, power_loss: bool) -> None:
    """What can be kept is there after it, and the file as it was or what became of it."""
    segments = [encode([b"%d" % first * 20] * 9, first, 1, 7) for first in range(0, 90, 9)]
    (tmp_path / "before").mkdir()
    path = DataPath(tmp_path / "before")
    path.commit_each(*segments)
    path.close()
    log = path.logs()[0]
    data = bytearray(log.read_bytes())
    data[HEADER_BYTES + 4 * (len(data) - HEADER_BYTES) // 10 + RECORD_BYTES + 100] ^= 0x81
    log.write_bytes(data)
    files = FaultyFiles(str(tmp_path / "before"))
    started = DataPath(tmp_path / "before", files=files)
    kept = started.sequences()
    assert len(kept) == 81
    for step in range(len(files.trace) + 1):
        after = tmp_path / str(step)
        files.crash(str(after), step, power_loss=power_loss, chance=random.Random(step) if power_loss else None)
        again = DataPath(after)
        assert again.sequences() == kept
        again.close()
        assert any(file.read_bytes() == data for file in after.rglob("*.log*"))
        assert DataPath(after).reports == []


@pytest.mark.parametrize("operation", ["make_directory", "write", "link", "rename", "sync"])
def test_a_file_that_cannot_be_rewritten_is_read_as_it_is(tmp_path: Path, operation: str) -> None:
    """The start succeeds, reads pass over the damage, and a later start rewrites it."""
    path = DataPath(tmp_path)
    path.commit_each(*[encode([b"%d" % first * 20] * 9, first, 1, 7) for first in range(0, 90, 9)])
    path.close()
    log = path.logs()[0]
    data = bytearray(log.read_bytes())
    data[HEADER_BYTES + 4 * (len(data) - HEADER_BYTES) // 10 + RECORD_BYTES + 100] ^= 0x81
    log.write_bytes(data)
    files = FaultyFiles(str(tmp_path))
    files.fail(operation, errno.ENOSPC, times=100)
    if operation == "link":  # then a copy is made, which needs space
        files.fail("open", errno.ENOSPC, after=2, times=100)
    failing = DataPath(tmp_path, files=files)
    files.heal()
    assert any("cannot be rewritten: no space left on device" in why for _, why in failing.notes)
    assert len(failing.sequences()) == 81
    failing.commit(encode([b"more"], 90, 1, 7))
    assert log.read_bytes() == data
    failing.queue.trim(0, [])
    assert log.read_bytes() != data
    assert len(failing.sequences()) == 82
    assert len(failing.reports) == 1


def test_a_last_record_of_full_length_is_kept_though_positions_do_not_know_it(tmp_path: Path) -> None:
    """It may have been acknowledged a moment before the broker was killed."""
    path = DataPath(tmp_path)
    path.commit_each(encode([b"a"], 1, 1, 7), encode([b"b" * 100], 2, 1, 7))
    path.close()
    log = path.logs()[0]
    data = log.read_bytes()
    log.write_bytes(data[:-50] + bytes(50))
    path.open()
    assert path.sequences() == [1]
    start = HEADER_BYTES + RECORD_BYTES + 35
    assert (tmp_path / "damaged.d/1/t" / f"{log.name}.from-{start}").read_bytes() == data[start:-50] + bytes(50)
    assert path.backend.damage.total().shown() == {"lost_count": 0, "damaged_count": 0, "set_aside_count": 1}


def test_a_tail_that_positions_know_is_kept_and_another_is_cut_off(tmp_path: Path) -> None:
    for known_end, is_kept in ((0, False), (3, True)):
        path = DataPath(tmp_path / str(known_end))
        path.commit_each(encode([b"a"], 1, 1, 7), encode([b"b" * 100], 2, 1, 7))
        path.close()
        log = path.logs()[0]
        log.write_bytes(log.read_bytes()[: HEADER_BYTES + RECORD_BYTES + 35 + 20])
        backend = DiskBackend(str(path.directory), LIMIT, path.report)
        backend.expect({"t": known_end})
        assert [*messages(read_all(backend.queue("t")))] == [1]
        assert [file.stat().st_size for file in path.directory.glob("damaged.d/*/t/*")] == [20] * is_kept
        backend.close()
