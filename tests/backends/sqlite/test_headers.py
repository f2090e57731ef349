"""Headers and channels in the backend sqlite: the version of the database, and what damage costs."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from nsqtw.backends.disk.salvage import WRONG_HEADERS
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.backends.sqlite.rows import UNKNOWN_CHANNEL, Row, values_of
from nsqtw.backends.sqlite.salvage import rebuild
from nsqtw.core.segment import Segment
from nsqtw.testing.contracts import headers, make_segment, make_segment_with_headers, messages, read_all

NONE = ("", b"")


class Opened:
    """A database, and what is reported of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reports: list[tuple[Any, ...]] = []
        self.backend = SqliteBackend(str(directory), lambda *damage: self.reports.append(damage))
        self.queue = self.backend.queue("t")

    def commit(self, *segments: Segment) -> None:
        assert self.backend.commit([(self.queue, segments)], False) == {}

    def asked(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What another program reads of the database, or changes in it."""
        with sqlite3.connect(self.directory / "messages.db") as connection:
            rows = connection.execute(sql, values).fetchall()
        connection.close()
        return rows

    @property
    def version(self) -> int:
        return int(self.asked("PRAGMA user_version")[0][0])


def test_the_version_says_whether_there_are_headers(tmp_path: Path) -> None:
    """An older nsqtw opens a database of version 2; from the first headers on it refuses, until they are gone."""
    opened = Opened(tmp_path)
    opened.commit(make_segment(0, 3))
    assert opened.backend.commit([], True) == {}
    assert opened.version == 2
    assert opened.backend.commit([(opened.queue, [make_segment_with_headers(3), make_segment(1)])], False) != {}
    assert opened.version == 2, "the transaction was rolled back"
    opened.commit(make_segment_with_headers(3, 3))
    assert opened.backend.commit([], True) == {}
    assert opened.version == 3
    opened.backend.close()
    opened = Opened(tmp_path)
    assert opened.version == 3
    opened.queue.trim(6, [0, 4])
    opened.backend.close()
    opened = Opened(tmp_path)
    assert (opened.version, headers(read_all(opened.queue, 3))[4]) == (3, headers([make_segment_with_headers(4)])[4])
    opened.queue.trim(6, [])
    opened.backend.close()
    assert opened.version == 2


def test_a_start_lowers_the_version_after_a_crash(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.commit(make_segment_with_headers(0, 2))
    opened.queue.trim(2, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nsqtw.backends.sqlite.backend.lower_version", lambda connection: None)
        opened.backend.close()
    assert opened.version == 3
    opened = Opened(tmp_path)
    assert opened.version == 2
    opened.backend.close()


def test_a_database_of_the_version_before_is_opened(tmp_path: Path) -> None:
    """It gets the column; with it an older nsqtw reads and writes it as before."""
    opened = Opened(tmp_path)
    opened.commit(make_segment(0, 3))
    opened.backend.close()
    opened.asked("DROP INDEX with_headers")
    opened.asked("ALTER TABLE segment DROP COLUMN headers")
    opened = Opened(tmp_path)
    opened.commit(make_segment_with_headers(3, 2))
    assert messages(read_all(opened.queue)) == messages([make_segment(0, 3), make_segment_with_headers(3, 2)])
    older = values_of(1, make_segment(5))
    columns = "topic, first, last, delay, crc, frames, head"
    opened.asked(f"INSERT INTO segment ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", *older[:-1])
    opened.asked("UPDATE topic SET end_sequence = 6")
    opened.backend.close()
    opened = Opened(tmp_path)
    assert headers(read_all(opened.queue))[5] == NONE
    assert opened.reports == []
    opened.backend.close()


SEGMENTS = [make_segment_with_headers(2, 3), make_segment_with_headers(2, 3, channel="c")]


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("change", [0x10, 0x5B])
def test_damage_of_any_byte_of_the_headers(segment: Segment, change: int) -> None:
    """No message gets headers or a channel that it had not."""
    row = Row(1, *values_of(1, segment))
    assert row.fault() == ""
    for at in range(len(row.headers)):
        damaged = bytearray(row.headers)
        damaged[at] ^= change
        bad = row._replace(headers=bytes(damaged))
        assert bad.fault() == WRONG_HEADERS
        bare = bad.without_damaged_headers()
        if bare is None:
            assert segment.channel
        else:
            found = bare.segment()
            assert (found.frames, found.headers, found.channel) == (segment.frames, None, segment.channel)
            assert bare.fault() == ""
        repaired = bad.repaired()
        assert (repaired is None) == (bare is None)


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("number", range(1, 6))
def test_damage_of_the_numbers_leaves_the_headers(segment: Segment, number: int) -> None:
    """What the frames and the header block prove is kept by a repair."""
    values = list(values_of(1, segment))
    values[number if number != 5 else 6] = 77
    row = Row(1, *values)
    assert row.fault()
    repaired = row.repaired()
    if number == 4:  # the checksum of the frames
        assert repaired is None
    else:
        assert repaired is not None
        found = repaired.segment()
        assert (found.headers, found.channel, found.first) == (segment.headers, segment.channel, segment.first)


@pytest.mark.parametrize("headers_value", [None, 5, "text", b""])
def test_a_header_block_that_is_gone(headers_value: object) -> None:
    """Messages for one channel are lost then: the other channels must not get them."""
    plain, directed = (Row(1, *values_of(1, segment))._replace(headers=headers_value) for segment in SEGMENTS)
    assert plain.fault() and directed.fault() == WRONG_HEADERS
    assert directed.repaired() is None
    repaired = plain.repaired()
    assert repaired is not None and repaired.segment().headers is None


def test_a_read_delivers_without_damaged_headers_and_counts(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.commit(make_segment(0, 2), SEGMENTS[0], make_segment_with_headers(5, 2, channel="c"))
    block = bytearray(values_of(1, SEGMENTS[0])[-1])
    block[3:9] = b"damage"
    opened.asked("UPDATE segment SET headers = ? WHERE first = 2", bytes(block))
    opened.asked("UPDATE segment SET headers = x'00' WHERE first = 5")
    for _ in range(2):
        assert headers(read_all(opened.queue)) == dict.fromkeys(range(5), NONE)
    assert opened.reports == [
        ("t", "messages.db segment 2", 2, 1, f"{WRONG_HEADERS}; no message is lost"),
        ("t", "messages.db segment 3", 5, 6, UNKNOWN_CHANNEL),
    ]
    assert opened.backend.damage.total().shown() == {"lost_count": 2, "damaged_count": 5, "set_aside_count": 0}
    opened.backend.close()


def test_a_database_that_is_written_anew_keeps_headers(tmp_path: Path) -> None:
    """With the version that says so."""
    opened = Opened(tmp_path)
    segments = [make_segment(0, 2), *SEGMENTS[:1], make_segment_with_headers(5, 2, channel="c")]
    opened.commit(*segments)
    opened.backend.close()
    said: list[tuple[Any, ...]] = []
    rebuild(str(tmp_path / "messages.db"), str(tmp_path / "new"), lambda *damage: said.append(damage))
    (tmp_path / "new").replace(tmp_path / "messages.db")
    opened = Opened(tmp_path)
    assert headers(read_all(opened.queue)) == headers(segments)
    assert (opened.version, said, opened.reports) == (3, [], [])
    opened.backend.close()


def directed(opened: Opened, place: int = 0) -> dict[int, str]:
    """What `directed` finds up to where the caller has to read."""
    found: dict[int, str] = {}
    while place < opened.queue.end:
        runs, reached = opened.queue.directed(place)
        found |= {number: channel for first, end, channel in runs for number in range(first, end)}
        if reached == place:
            break
        place = reached
    return found


def test_what_is_for_one_channel_is_found_in_several_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a read of the other rows."""
    monkeypatch.setattr("nsqtw.backends.sqlite.backend._LOOKED_AT_BYTES", 1)
    opened = Opened(tmp_path)
    for first in range(0, 60, 6):
        opened.commit(make_segment(first, 2), make_segment_with_headers(first + 2, 2, channel="ab"[first % 4 // 2]))
        opened.commit(make_segment_with_headers(first + 4, 2))
    expected = {number: "ab"[first % 4 // 2] for first in range(0, 60, 6) for number in (first + 2, first + 3)}
    assert len(opened.queue.directed(0)[0]) == 1
    opened.asked("UPDATE segment SET frames = x'00' WHERE head < 1 << 39")
    assert directed(opened) == expected
    opened.backend.close()
    assert opened.reports == []


@pytest.mark.parametrize("change", ["frames = x'00'", "headers = NULL", "last = last - 1", "crc = crc + 1"])
def test_a_damaged_row_is_left_to_a_read(tmp_path: Path, change: str) -> None:
    opened = Opened(tmp_path)
    opened.commit(*[make_segment_with_headers(first, 2, channel="c") for first in (0, 2, 4)])
    opened.asked(f"UPDATE segment SET {change} WHERE first = 2")
    assert directed(opened) == {0: "c", 1: "c"}
    assert opened.queue.directed(2) == ([], 2)
    assert opened.reports == []
    assert directed(opened, 4) == {4: "c", 5: "c"}
    opened.backend.close()


def test_a_damaged_index_of_what_is_for_one_channel_is_left_to_a_read(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.commit(make_segment_with_headers(0, 2, channel="c"))
    opened.backend.close()
    spoil_index(tmp_path / "messages.db", "directed")
    opened = Opened(tmp_path)
    assert opened.queue.directed(0) == ([], 0)
    assert headers(read_all(opened.queue)).keys() == {0, 1}
    opened.backend.close()


def spoil_index(path: Path, name: str) -> None:
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"x" * size)


def test_a_database_without_the_index_gets_it(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.commit(make_segment(0, 2), make_segment_with_headers(2, 2, channel="c"))
    opened.backend.close()
    opened.asked("DROP INDEX directed")
    opened = Opened(tmp_path)
    assert directed(opened) == {2: "c", 3: "c"}
    opened.backend.close()
