"""The backend that keeps segments as rows."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.backends.files import Files
from nsqtw.backends.spare_space import SPARE_BYTES
from nsqtw.backends.sqlite.backend import SqliteBackend, SqliteFactory, SqliteQueue
from nsqtw.backends.sqlite.rows import WRONG_NUMBERS
from nsqtw.backends.sqlite.schema import open_database
from nsqtw.errors import BackendError, BackendFull, OptionError
from nsqtw.interfaces import IBackend, IBackendQueueFactory
from nsqtw.testing.contracts import (
    BackendContract,
    DirectedContract,
    FailingCommitContract,
    make_segment,
    messages,
    read_all,
)

RECORDS = 100


class TestSqliteContract(BackendContract, DirectedContract):
    def make_backend(self, directory: str) -> IBackend:
        return SqliteBackend(directory, no_report)


def no_report(*damage: object) -> None:
    raise AssertionError(damage)


@pytest.fixture
def reports() -> list[tuple[Any, ...]]:
    return []


@pytest.fixture
def backend(tmp_path: Path, reports: list[tuple[Any, ...]]) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(str(tmp_path), lambda *damage: reports.append(damage))
    yield backend
    backend.close()


def change(tmp_path: Path, sql: str, *values: object) -> None:
    """What something else does to the database."""
    with sqlite3.connect(tmp_path / "messages.db") as connection:
        connection.execute(sql, values)
    connection.close()


def test_the_factory_opens_it(tmp_path: Path) -> None:
    assert IBackendQueueFactory.providedBy(SqliteFactory())
    backend = SqliteFactory().open("", str(tmp_path), None, no_report)
    assert backend.topics() == []
    backend.close()
    with pytest.raises(OptionError, match="takes no argument"):
        SqliteFactory().open("somewhere", str(tmp_path), None, no_report)


def test_several_topics_are_stored_or_none(backend: SqliteBackend) -> None:
    one, two = backend.queue("one"), backend.queue("two")
    backend.commit([(one, [make_segment(5)])], False)
    failed = backend.commit([(two, [make_segment(0)]), (one, [make_segment(3)])], False)
    assert {str(error) for error in failed.values()} == {"sequence 3 is not above the end of the log, 6"}
    assert set(failed) == {one, two}
    assert (two.end, list(messages(read_all(two)))) == (0, [])
    assert backend.commit([(two, [make_segment(0)]), (one, [make_segment(6)])], False) == {}
    assert (list(messages(read_all(one))), list(messages(read_all(two)))) == ([5, 6], [0])


def test_rows_that_are_lost_are_counted(tmp_path: Path, backend: SqliteBackend) -> None:
    queue = backend.queue("t")
    segment = make_segment(2, 3)
    backend.commit([(queue, [make_segment(0, 2), segment])], False)
    for place in (0, 40, len(segment.frames) - 1):
        frames = bytearray(segment.frames)
        frames[place] ^= 32
        change(tmp_path, f"UPDATE segment SET frames = x'{frames.hex()}' WHERE first = 2")
        assert list(messages(read_all(queue))) == [0, 1]
    counts = backend.damage.of_topic("t")
    assert counts is not None
    assert counts.shown() == {"lost_count": 3, "damaged_count": 3, "set_aside_count": 0}


def test_damaged_frames_cost_one_segment_and_are_reported_once(
    tmp_path: Path, backend: SqliteBackend, reports: list[tuple[Any, ...]]
) -> None:
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(0, 2), make_segment(2, 3), make_segment(5, 1)])], False)
    change(tmp_path, "UPDATE segment SET frames = zeroblob(length(frames)) WHERE first = 2")
    for _ in range(2):
        assert list(messages(read_all(queue))) == [0, 1, 5]
    assert reports == [("t", "messages.db segment 2", 2, 4, "the checksum of the frames is wrong")]


def test_a_read_ends_after_many_damaged_rows(tmp_path: Path, backend: SqliteBackend) -> None:
    """All of them at once would take too long for a turn of the reactor."""
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(number, 1) for number in range(400)])], False)
    change(tmp_path, "UPDATE segment SET frames = zeroblob(length(frames)) WHERE first % 2")
    first_read = queue.read(0, 1 << 20)
    assert 0 < len(first_read) < 200
    assert list(messages(read_all(queue))) == [*range(0, 400, 2)]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("crc = CAST(x'ff' AS TEXT)", "the database is damaged there"),
        ("first = 'two'", WRONG_NUMBERS),
        ("delay = -1", WRONG_NUMBERS),
        ("first = 3", WRONG_NUMBERS),
        ("first = 1", WRONG_NUMBERS),
    ],
)
def test_numbers_of_a_row_that_are_damaged_cost_its_segment(
    tmp_path: Path, backend: SqliteBackend, reports: list[tuple[Any, ...]], damage: str, why: str
) -> None:
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(0, 2), make_segment(2, 3), make_segment(5, 1)])], False)
    change(tmp_path, f"UPDATE segment SET {damage} WHERE first = 2")
    assert list(messages(read_all(queue))) == [0, 1, 5]
    assert [(report[3], report[4]) for report in reports] == [(4, why)]


@pytest.mark.parametrize("damage", ["first = 'two'", "first = 0", "delay = -1", "last = 9007199254740000"])
def test_a_row_that_is_damaged_is_not_cut(tmp_path: Path, backend: SqliteBackend, damage: str) -> None:
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(2, 20)])], False)
    change(tmp_path, f"UPDATE segment SET {damage}")
    queue.trim(1 << 53, [3])
    assert read_all(queue) == []
    with sqlite3.connect(tmp_path / "messages.db") as connection:
        assert connection.execute("SELECT count(*) FROM segment").fetchone() == (1,)
    connection.close()


def test_the_row_of_a_topic_that_is_damaged_costs_nothing(tmp_path: Path, backend: SqliteBackend) -> None:
    backend.commit([(backend.queue("t"), [make_segment(0, 2), make_segment(2, 3)])], False)
    size = backend.queue("t").size
    backend.close()
    change(tmp_path, "UPDATE topic SET end_sequence = 'far', bytes = 1.5")
    backend = SqliteBackend(str(tmp_path), no_report)
    queue = backend.queue("t")
    assert (queue.first, queue.end, queue.size) == (0, 5, size)
    assert list(messages(read_all(queue))) == [0, 1, 2, 3, 4]
    backend.close()


def test_a_damaged_page_costs_what_is_on_it(tmp_path: Path, reports: list[tuple[Any, ...]]) -> None:
    """Every message outside it is still delivered."""
    backend = SqliteBackend(str(tmp_path), no_report)
    backend.commit([(backend.queue("t"), [make_segment(n, 1, size=4000) for n in range(RECORDS)])], False)
    backend.close()
    path = tmp_path / "messages.db"
    data = bytearray(path.read_bytes())
    place = data.index(b"50 50 50 50 ") & ~8191
    data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)
    backend = SqliteBackend(str(tmp_path), lambda *damage: reports.append(damage))
    found = messages(read_all(backend.queue("t"), limit=20_000))
    backend.close()
    lost = {sequence for _, _, first, last, _ in reports for sequence in range(first, last + 1)}
    assert {51, 52, 53} - lost, "the page has few messages"
    assert set(found) | lost == set(range(RECORDS)) and not set(found) & lost
    assert 1 <= len(lost) <= 4


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "messages.db").write_bytes(b"hello" * 1000)
    with pytest.raises(BackendError, match=r"messages.db: file is not a database"):
        SqliteBackend(str(tmp_path), no_report)


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    SqliteBackend(str(tmp_path), no_report).close()
    change(tmp_path, "PRAGMA user_version = 4")
    with pytest.raises(BackendError, match="has version 4, and this nsqtw knows up to 3"):
        SqliteBackend(str(tmp_path), no_report)


def test_an_interrupted_deletion_is_finished_by_the_next_open(tmp_path: Path) -> None:
    backend = SqliteBackend(str(tmp_path), no_report)
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(0)])], False)
    backend.close()
    change(tmp_path, "UPDATE topic SET name = NULL")
    backend = SqliteBackend(str(tmp_path), no_report)
    assert (backend.topics(), backend.queue("t").end) == ([], 0)
    backend.close()
    with sqlite3.connect(tmp_path / "messages.db") as connection:
        assert connection.execute("SELECT count(*) FROM segment").fetchone() == (0,)
    connection.close()


def test_a_commit_that_must_be_durable_syncs(tmp_path: Path, backend: SqliteBackend) -> None:
    """FULL makes SQLite sync the WAL with the commit."""
    statements: list[str] = []
    backend._writer.set_trace_callback(statements.append)
    backend.commit([(backend.queue("t"), [make_segment(0)])], True)
    backend.commit([(backend.queue("t"), [make_segment(1)])], False)
    before = os.path.getsize(tmp_path / "messages.db-wal")
    backend.commit([], True)
    assert os.path.getsize(tmp_path / "messages.db-wal") > before, "a commit that writes nothing syncs nothing"
    backend._writer.set_trace_callback(None)
    synchronous = [line for line in statements if "synchronous" in line]
    assert synchronous == [f"PRAGMA synchronous = {word}" for word in ("FULL", "NORMAL", "FULL")]


def test_space_comes_back_and_a_few_wanted_messages_do_not_keep_the_rest(
    tmp_path: Path, backend: SqliteBackend
) -> None:
    queue = backend.queue("t")
    for first in range(0, 1000, 10):
        backend.commit([(queue, [make_segment(first, 10, size=5000)])], False)
    full = queue.size
    queue.trim(990, [505])
    assert list(messages(read_all(queue))) == [505, *range(990, 1000)]
    assert queue.size < full / 50
    assert queue.first == 505
    for _ in range(20):
        queue.trim(990, [505])
    backend.close()
    assert os.path.getsize(tmp_path / "messages.db") < full / 10


def test_a_long_row_of_survivors_does_not_keep_trim_from_what_is_behind(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsqtw.backends.sqlite.backend.ROWS_AT_ONCE", 5)
    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(n) for n in range(30)])], False)
    for _ in range(7):
        queue.trim(30, range(10))
    assert list(messages(read_all(queue))) == list(range(10))


class FullFiles(Files):
    """A disk that has `free` bytes."""

    def __init__(self) -> None:
        self.free = 1 << 30

    def free_space(self, path: str) -> tuple[int, int]:
        return self.free, 1 << 30

    def size(self, path: str) -> int:
        return os.path.getsize(path)


def test_the_last_of_the_space_is_not_for_messages(tmp_path: Path) -> None:
    files = FullFiles()
    backend = SqliteBackend(str(tmp_path), no_report, files)
    queue = backend.queue("t")
    assert backend.commit([(queue, [make_segment(0)])], False) == {}
    files.free = 0
    failed = backend.commit([(queue, [make_segment(1, 5, size=1 << 20)])], False)
    assert isinstance(failed[queue], BackendFull)
    assert os.strerror(errno.ENOSPC).lower() in str(failed[queue])
    queue.trim(1, [])
    files.free = 1 << 30
    assert backend.commit([(queue, [make_segment(1)])], False) == {}
    assert list(messages(read_all(queue))) == [1]
    backend.close()


class TestSqliteFailingCommit(FailingCommitContract):
    """A transaction that fails in the middle."""

    def make_backend(self, directory: str) -> IBackend:
        return SqliteBackend(directory, no_report)

    def break_commits(self, backend: IBackend, good: int) -> None:
        self._writer(backend).execute(
            f"CREATE TEMP TRIGGER broken BEFORE INSERT ON segment WHEN NEW.topic > {good} "
            "BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )

    def repair_commits(self, backend: IBackend) -> None:
        self._writer(backend).execute("DROP TRIGGER broken")

    def _writer(self, backend: Any) -> sqlite3.Connection:
        return backend._writer


def test_after_a_failed_sync_the_log_of_changes_is_left(tmp_path: Path, backend: SqliteBackend) -> None:
    """What the next commit writes must not stand behind something that may not be there."""

    class Failing:
        """The writer, whose COMMIT fails once as when the disk fails to sync."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection, self.statements, self.fails = connection, list[str](), True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            self.statements.append(statement)
            if statement == "COMMIT" and self.fails:
                self.fails = False
                failure = sqlite3.OperationalError("disk I/O error")
                failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise failure
            return self._connection.execute(statement, *values)

    queue = backend.queue("t")
    backend.commit([(queue, [make_segment(0)])], False)
    writer = backend._writer = Failing(backend._writer)  # type: ignore[assignment]
    assert set(backend.commit([(queue, [make_segment(1)])], True)) == {queue}
    assert (queue.end, list(messages(read_all(queue)))) == (1, [0])
    for first in (1, 2):
        assert backend.commit([(queue, [make_segment(first)])], True) == {}
    assert writer.statements.count("PRAGMA wal_checkpoint(TRUNCATE)") == 1
    assert list(messages(read_all(queue))) == [0, 1, 2]


def test_space_of_finished_messages_goes_back_to_the_file_system(backend: SqliteBackend, tmp_path: Path) -> None:
    """By incremental vacuum, some with each trim, for as long as the backend asks for another one."""
    queue = backend.queue("t")
    for first in range(60):
        assert backend.commit([(queue, [make_segment(first, 1, size=200_000)])], False) == {}
    trims = 0
    while trims == 0 or queue.may_free_later:
        queue.trim(60, [])
        trims += 1
        assert trims < 10
    assert not queue.may_free
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("messages.db*")}
    assert sizes.pop("messages.db.spare") == SPARE_BYTES
    assert sum(sizes.values()) < 200_000, sizes


def test_a_full_disk_is_trimmed_with_the_space_kept_for_that(
    backend: SqliteBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = backend.queue("t")
    assert backend.commit([(queue, [make_segment(0, 1, size=200_000)])], False) == {}
    monkeypatch.setattr(SqliteBackend, "is_full", True)
    tidy, failures = backend.tidy, [BackendFull("messages.db: database or disk is full")]

    def fail_once(most_pages: int) -> None:
        if failures:
            raise failures.pop()
        tidy(most_pages)

    monkeypatch.setattr(backend, "tidy", fail_once)
    queue.trim(1, [])
    assert queue.size == 0
    assert not (tmp_path / "messages.db.spare").exists()


def test_a_restart_goes_on_giving_free_pages_back(tmp_path: Path) -> None:
    """A stop right after the last FIN leaves more of them than one trim cuts off."""
    backend = SqliteBackend(str(tmp_path), no_report)
    fill(backend, "t")
    with backend.transaction() as connection:
        connection.execute("DELETE FROM segment")
    backend.close()
    large = (tmp_path / "messages.db").stat().st_size
    backend = SqliteBackend(str(tmp_path), no_report)
    queue = backend.queue("t")
    assert isinstance(queue, SqliteQueue)
    assert queue.may_free
    queue.trim(queue.end, [])
    while queue.may_free_later:
        queue.trim(queue.end, [])
    backend.close()
    assert (tmp_path / "messages.db").stat().st_size < 128 * 1024 < large


def test_a_full_disk_does_not_prevent_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening writes; the space for that is kept."""

    def connect_if_there_is_space(path: str) -> sqlite3.Connection:
        if spare.exists():
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        return open_database(path)

    spare = tmp_path / "messages.db.spare"
    spare.touch()
    monkeypatch.setattr("nsqtw.backends.sqlite.backend.open_database", connect_if_there_is_space)
    backend = SqliteBackend(str(tmp_path), no_report)
    assert backend.topics() == []
    backend.close()
    spare.touch()
    monkeypatch.setattr("nsqtw.backends.spare_space.SpareSpace.give_back", lambda space: False)
    with pytest.raises(BackendFull, match="database or disk is full"):
        SqliteBackend(str(tmp_path), no_report)


def test_a_deletion_gives_all_its_space_back(backend: SqliteBackend, tmp_path: Path) -> None:
    """There may be no other topic whose trims would go on with it."""
    fill(backend, "t")
    backend.queue("t").delete()
    assert sum(path.stat().st_size for path in tmp_path.glob("messages.db*") if path.suffix != ".spare") < 256 * 1024


def fill(backend: SqliteBackend, topic: str) -> None:
    """Store more than one `tidy` gives back."""
    queue = backend.queue(topic)
    for number in range(20):
        assert not backend.commit([(queue, [make_segment(number, size=1024 * 1024)])], False)
