"""Reading the queue files of an nsqd 1.x."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.nsqd_import import diskqueue
from nsqtw.nsqd_import.diskqueue import Meta, QueueReader, find, read_meta
from tests.nsqd_import.nsqd_files import Left, QueueWriter, left, write_queue

MAX_MSG_SIZE = 100


class Found:
    """What is read from a directory, and what was complained about."""

    def __init__(self, directory: Path, name: str = "t", max_msg_size: int = MAX_MSG_SIZE) -> None:
        self.complaints: list[tuple[str, int, str]] = []
        files = find(path.name for path in directory.iterdir()).queues[name]
        reader = QueueReader(str(directory), files, max_msg_size, lambda *about: self.complaints.append(about))
        self.payloads = [record.payload for record in reader.records()]

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(name, position) for name, position, _ in self.complaints]


def payloads(*messages: Left) -> list[bytes]:
    return [message.payload for message in messages]


FIVE = [left(number) for number in range(5)]


def test_the_example_of_the_specification(tmp_path: Path) -> None:
    record = bytes.fromhex("0000001b 18e9fda173dd5712 0000") + b"18a2d3453b669000" + b"1"
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(record)
    (tmp_path / "t.diskqueue.meta.dat").write_text(f"1\n0,0\n0,{len(record)}\n")
    found = Found(tmp_path)
    assert found.payloads == [record[4:]]
    assert found.complaints == []


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    QueueWriter(tmp_path, "t", 100).put(*FIVE).take(3).sync()
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE[3:])
    assert found.complaints == []


def test_an_empty_queue_has_nothing(tmp_path: Path) -> None:
    write_queue(tmp_path, "t")
    found = Found(tmp_path)
    assert (found.payloads, found.complaints) == ([], [])


def test_a_queue_read_to_its_end_has_nothing(tmp_path: Path) -> None:
    QueueWriter(tmp_path, "t").put(*FIVE).take(5).sync()
    found = Found(tmp_path)
    assert (found.payloads, found.complaints) == ([], [])


def test_what_was_written_after_the_last_sync_is_read(tmp_path: Path) -> None:
    QueueWriter(tmp_path, "t").put(*FIVE[:2]).sync().put(*FIVE[2:])
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE)
    assert found.complaints == []


def test_what_was_read_after_the_last_sync_comes_again(tmp_path: Path) -> None:
    QueueWriter(tmp_path, "t").put(*FIVE).sync().take(2)
    assert Found(tmp_path).payloads == payloads(*FIVE)


def test_a_file_removed_after_the_last_sync_is_missed_and_no_other(tmp_path: Path) -> None:
    QueueWriter(tmp_path, "t", 60).put(*FIVE).sync().take(2)
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE[2:])
    assert found.complaints == [("t.diskqueue.meta.dat", 0, "files of unread messages that are not there: 2")]


def test_the_last_file_may_be_missed(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, "t", *FIVE, max_bytes_per_file=60)
    queue.path(4).unlink()
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE[:4])
    assert found.places == [("t.diskqueue.meta.dat", 0)]


def test_without_metadata_all_there_is_is_read(tmp_path: Path) -> None:
    queue = QueueWriter(tmp_path, "t", 100).put(*FIVE).take(1).sync()
    queue.meta_path.unlink()
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE)
    assert found.places == [("t.diskqueue.meta.dat", 0)]


def test_with_metadata_that_make_no_sense_all_there_is_is_read(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, "t", *FIVE, max_bytes_per_file=100)
    for text in ("", "5\n0,0\n", "5\n-1,0\n0,5\n", "five\n0,0\n1,2\n", "5\n0,0\n1,2\nmore"):
        queue.meta_path.write_text(text)
        found = Found(tmp_path)
        assert found.payloads == payloads(*FIVE)
        assert found.places == [("t.diskqueue.meta.dat", 0)]


def test_files_newer_than_the_metadata_are_read(tmp_path: Path) -> None:
    queue = QueueWriter(tmp_path, "t", 60).put(*FIVE[:2])
    old_meta = queue.sync().meta_path.read_text()
    queue.put(*FIVE[2:]).meta_path.write_text(old_meta)
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE)
    assert found.places == [(f"t.diskqueue.00000{number}.dat", 0) for number in (2, 3, 4)]


def test_files_older_than_the_read_position_are_not_read(tmp_path: Path) -> None:
    queue = QueueWriter(tmp_path, "t", 60).put(*FIVE).take(2).sync()
    queue.path(0).write_bytes(FIVE[0].record)
    assert Found(tmp_path).payloads == payloads(*FIVE[2:])


def test_the_rest_of_a_file_with_a_bad_record_is_left_out_and_the_next_file_is_read(tmp_path: Path) -> None:
    size = len(FIVE[0].record)
    for length in (0, 25, 2**31, 2**32 - 1, 500):
        queue = write_queue(tmp_path, "t", *FIVE, max_bytes_per_file=3 * size)
        with queue.path(0).open("r+b") as file:
            file.seek(size)
            file.write(length.to_bytes(4, "big"))
        found = Found(tmp_path)
        assert found.payloads == payloads(FIVE[0], *FIVE[3:])
        assert found.places == [("t.diskqueue.000000.dat", size)]


def test_a_file_that_the_disk_cannot_read_is_left_out_from_there_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(FIVE[0].record)
    write_queue(tmp_path, "t", *FIVE, max_bytes_per_file=3 * size)

    def failing_open(path: str, *how, **more):
        file = open(path, *how, **more)  # noqa: SIM115  # the caller closes it
        return BadSector(file, size) if path.endswith("000000.dat") else file

    monkeypatch.setattr(diskqueue, "open", failing_open, raising=False)
    found = Found(tmp_path)
    assert found.payloads == payloads(FIVE[0], *FIVE[3:])
    assert found.complaints == [("t.diskqueue.000000.dat", size, "it cannot be read - input/output error")]


class BadSector:
    """A file that cannot be read from a position on."""

    def __init__(self, file: BinaryIO, position: int) -> None:
        self._file = file
        self._position = position

    def __enter__(self) -> BadSector:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()

    def seek(self, position: int) -> int:
        return self._file.seek(position)

    def read(self, size: int) -> bytes:
        if self._file.tell() >= self._position:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._file.read(size)


def test_a_read_position_behind_the_end_of_the_file_is_complained_about(tmp_path: Path) -> None:
    queue = write_queue(tmp_path, "t", *FIVE)
    queue.meta_path.write_text("5\n0,100000\n0,100100\n")
    found = Found(tmp_path)
    assert found.payloads == []
    assert found.places == [("t.diskqueue.000000.dat", 100000)]


def test_messages_longer_than_allowed_now_are_read(tmp_path: Path) -> None:
    long = left(7, b"x" * 5000)
    write_queue(tmp_path, "t", FIVE[0], long, FIVE[1], long)
    found = Found(tmp_path)
    assert found.payloads == payloads(FIVE[0], long, FIVE[1], long)
    assert found.complaints == []


def test_two_messages_in_a_row_longer_than_allowed_now_are_a_bad_record(tmp_path: Path) -> None:
    """What stands behind the first is no proof that it is one."""
    long = left(7, b"x" * 5000)
    write_queue(tmp_path, "t", FIVE[0], long, long, FIVE[1])
    found = Found(tmp_path)
    assert found.payloads == payloads(FIVE[0])
    assert found.places == [("t.diskqueue.000000.dat", len(FIVE[0].record))]


def test_names_of_queues_and_of_other_files(tmp_path: Path) -> None:
    listing = find(
        [
            "t.diskqueue.000000.dat",
            "t.diskqueue.1234567.dat",
            "t.diskqueue.meta.dat",
            "t.diskqueue.meta.dat.12.tmp",
            "t:c.diskqueue.meta.dat",
            "a.diskqueue.diskqueue.000003.dat",
            "t.diskqueue.000001.dat.bad",
            "nsqd.dat",
            "t.diskqueue.1.dat",
            f"t.diskqueue.{1 << 63}.dat",
            "positions.db",
        ]
    )
    assert sorted(listing.queues) == ["a.diskqueue", "t", "t:c"]
    assert listing.queues["t"].numbers == [0, 1234567]
    assert len(listing.queues["t"].names) == 4
    assert listing.queues["a.diskqueue"].numbers == [3]
    assert listing.bad == ["t.diskqueue.000001.dat.bad"]


@pytest.mark.parametrize("numbers", [f"0,{1 << 63}\n0,100", f"{1 << 63},0\n{1 << 63},100"])
def test_metadata_with_numbers_that_nsqd_cannot_have(tmp_path: Path, numbers: str) -> None:
    """Damage, as any other."""
    write_queue(tmp_path, "t", *FIVE)
    (tmp_path / "t.diskqueue.meta.dat").write_text(f"5\n{numbers}\n")
    found = Found(tmp_path)
    assert found.payloads == payloads(*FIVE)
    assert found.places == [("t.diskqueue.meta.dat", 0)]


def test_metadata(tmp_path: Path) -> None:
    (tmp_path / "t.diskqueue.meta.dat").write_text("-3\n2,0\n3,40\n")
    assert read_meta(str(tmp_path), "t") == Meta(2, 0, 3, 40)
    assert read_meta(str(tmp_path), "u") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 60)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("sync"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(50, 400), st.booleans(), st.integers(0, 40))
def test_whatever_an_nsqd_did_nothing_unread_is_left_out(steps, limit: int, clean: bool, torn: int) -> None:
    """Ended well: exactly what was unread, in order. Killed, with a torn record at the end: that too, and repeats."""
    with TemporaryDirectory() as name:
        queue = QueueWriter(Path(name), "t", limit).sync()
        unread: list[Left] = []
        written: list[Left] = []
        for step, size in steps:
            if step == "put":
                written.append(left(len(written), bytes(size)))
                unread.append(written[-1])
                queue.put(written[-1])
            elif step == "take":
                count = min(size, len(unread))
                queue.take(count)
                del unread[:count]
            else:
                queue.sync()
        if clean:
            queue.sync()
        elif torn:
            with queue.path(queue.write_file).open("ab") as file:
                file.write(left(999, bytes(40)).record[:torn])
        found = Found(Path(name))
        assert found.payloads[len(found.payloads) - len(unread) :] == payloads(*unread)
        assert set(found.payloads) <= set(payloads(*written))
        if clean:
            assert found.payloads == payloads(*unread)
            assert found.complaints == []
