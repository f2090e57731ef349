"""Where cursors stand: the database, beyond what every implementation of IPositions must do."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from nsqtw.backends.positions.schema import VERSION
from nsqtw.backends.positions.store import Positions
from nsqtw.backends.spare_space import SPARE_BYTES
from nsqtw.core.checkpoint import Checkpoint, CursorState, PendingRow, SavedState, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.errors import BackendError, BackendFull


def load(path: str) -> SavedState:
    """What the next process finds."""
    positions = Positions(path)
    saved = positions.load()
    for topic in saved.topics:
        for cursor in topic.cursors:
            cursor.pending = list(all_rows(positions, topic.name, cursor.name))
    positions.close(False)
    return saved


def killed(path: str, to: Path) -> str:
    """A copy of what is on disk now, as a killed process leaves it."""
    to.mkdir()
    for file in Path(path).parent.glob("positions.db*"):
        shutil.copy(file, to)
    return str(to / "positions.db")


def checkpoint(number: int) -> Checkpoint:
    """One that is consistent in itself: everything in it is `number`."""
    pending = [PendingRow(number, number, number)]
    cursors = [
        CursorState(name, next=number, taken_total=number, pending=pending, pending_count=1, emptied=True)
        for name in ("c", "d")
    ]
    return Checkpoint(
        topics=[TopicState(name, released=number, put_total=number, cursors=cursors) for name in ("s", "t")]
    )


def numbers(saved: SavedState) -> set[int]:
    """All the numbers in it."""
    found = set()
    for topic in saved.topics:
        found |= {topic.released, topic.put_total}
        for cursor in topic.cursors:
            found |= {cursor.next, cursor.taken_total, *(row.sequence for row in cursor.pending)}
    return found


def test_a_killed_process_leaves_the_last_cut(positions: Positions, path: str, tmp_path: Path) -> None:
    """And the reserved blocks; it did not stop cleanly."""
    positions.reserve(7)
    for number in range(1, 6):
        positions.save(checkpoint(number))
        saved = load(killed(path, tmp_path / str(number)))
        assert numbers(saved) == {number}
        assert (saved.next_block, saved.clean_stop, saved.lost) == (7, False, False)


def test_reserving_makes_durable_what_was_saved_before(positions: Positions, path: str) -> None:
    """Also when enough was reserved already: SQLite syncs its log only when it writes to it."""
    positions.reserve(7)
    for number in range(1, 4):
        positions.save(checkpoint(number))
        before = Path(path + "-wal").stat().st_size
        positions.reserve(0)
        assert Path(path + "-wal").stat().st_size > before
    assert (load(path).next_block or 0) >= 7


def test_a_cut_is_all_or_nothing(positions: Positions, path: str, tmp_path: Path) -> None:
    """Whatever of the last bytes of the database's log a crash leaves, all numbers are of one cut."""
    positions.save(checkpoint(1))
    positions.save(checkpoint(2))
    copy = killed(path, tmp_path / "whole")
    log = Path(copy + "-wal").read_bytes()
    seen = set()
    for length in range(len(log) - 12_000, len(log), 499):
        Path(copy + "-wal").write_bytes(log[:length])
        Path(copy + "-shm").unlink(missing_ok=True)
        torn = killed(copy, tmp_path / str(length))
        found = numbers(load(torn))
        assert found in ({1}, {2}, set())
        seen |= found
    assert seen == {1}


def test_a_damaged_database_is_set_aside(positions: Positions, path: str, tmp_path: Path) -> None:
    """The caller is told; the damaged one is kept; the fresh one works, and is not called lost again."""
    positions.reserve(3)
    positions.save(checkpoint(1))
    positions.close(True)
    good = Path(path).read_bytes()
    for number, content in enumerate((b"no database at all", good[:3000], good[:1024] + bytes(len(good) - 1024)), 1):
        Path(path).write_bytes(content)
        Path(path + "-wal").write_bytes(b"a log of changes")
        damaged = Positions(path)
        assert damaged.load() == SavedState(lost=True)
        assert Path(f"{path}.damaged.{number}").read_bytes()
        damaged.save(checkpoint(number))
        damaged.close(False)
        saved = load(path)
        assert (numbers(saved), saved.lost) == ({number}, False)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE held",
        "ALTER TABLE cursor DROP COLUMN next",
        "DELETE FROM broker",
        "UPDATE cursor SET topic = 99 WHERE id = 1",
        "UPDATE topic SET name = x'ff' WHERE id = 1",
        "UPDATE topic SET name = CAST(x'ff' AS TEXT) WHERE id = 1",
        "UPDATE cursor SET name = 7 || x'ff' WHERE id = 1",
        "UPDATE broker SET version = 'x'",
    ],
)
def test_a_database_that_makes_no_sense_is_set_aside(positions: Positions, path: str, change: str) -> None:
    """A whole database with something else in it is as bad as a damaged one."""
    positions.save(checkpoint(1))
    positions.close(False)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    assert load(path) == SavedState(lost=True)
    assert load(path) == SavedState()


def test_a_start_interrupted_while_setting_aside(positions: Positions, path: str) -> None:
    """The next start knows that something was lost, and a fresh database half made is not taken."""
    positions.save(checkpoint(1))
    positions.close(False)
    Path(path + ".new").write_bytes(b"half")
    assert numbers(load(path)) == {1}
    assert not Path(path + ".new").exists()
    load(path + ".new")
    Path(path).rename(path + ".damaged.1")
    assert load(path) == SavedState(lost=True)
    assert load(path) == SavedState()


def test_a_later_version_is_not_touched(positions: Positions, path: str) -> None:
    """Who goes back to an older nsqtw is told, and loses nothing."""
    positions.save(checkpoint(1))
    positions.close(False)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE broker SET version = ?", (VERSION + 1,))
    connection.commit()
    connection.close()
    with pytest.raises(BackendError, match=f"schema version {VERSION + 1}"):
        load(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM cursor").fetchone() == (4,)
    connection.close()


_TO_4 = "DROP TABLE dedupe"
_TO_3 = "; ".join(
    f"ALTER TABLE topic DROP COLUMN {column}"
    for column in ("retention_time", "retention_bytes", "floor", "marks", "runs")
)
_TO_2 = (
    "DROP INDEX held_due; ALTER TABLE cursor DROP COLUMN held_count; ALTER TABLE broker DROP COLUMN suspect;"
    "ALTER TABLE broker DROP COLUMN wall_shift_ms"
)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_earlier_version_is_brought_up_to_date(positions: Positions, path: str, version: int) -> None:
    """
    Version 1 knew no durability class of a topic's own, version 2 no pages of held rows, version 3 no retention,
    version 4 no publishers' ids.
    """
    positions.save(checkpoint(1))
    positions.close(False)
    connection = sqlite3.connect(path)
    connection.executescript(f"{_TO_4}; UPDATE broker SET version = 4")
    if version < 4:
        connection.executescript(f"{_TO_3}; ALTER TABLE cursor DROP COLUMN replays; UPDATE broker SET version = 3")
    if version < 3:
        connection.executescript(f"{_TO_2}; UPDATE broker SET version = 2")
    if version < 2:
        columns = "id, name, paused, released, released_total, end_sequence, put_total, dropped, waiting"
        connection.executescript(
            f"CREATE TABLE older AS SELECT {columns} FROM topic; DROP TABLE topic; ALTER TABLE older RENAME TO topic;"
            "UPDATE broker SET version = 1"
        )
    connection.close()
    for _ in range(2):
        saved = load(path)
        assert numbers(saved) == {1}
        assert [cursor.pending_count for topic in saved.topics for cursor in topic.cursors] == [1, 1, 1, 1]
        assert [(topic.floor, topic.marks, topic.runs) for topic in saved.topics] == [(None, [], [])] * 2
        assert saved.invalid == []


def test_there_is_no_way_to_have_one(tmp_path: Path) -> None:
    """One line says what is wrong."""
    path = str(tmp_path / "missing" / "positions.db")
    with pytest.raises(BackendError) as refused:
        Positions(path).load()
    assert str(refused.value) == f"{path}: unable to open database file"


def test_what_the_operating_system_refuses_at_start(tmp_path: Path) -> None:
    """In its words, without its number, and with the file it is about."""
    path = str(tmp_path / "positions.db")
    Path(path).touch()
    Path(path + ".new").mkdir()
    with pytest.raises(BackendError) as refused:
        Positions(path).load()
    assert str(refused.value) == f"{path}.new: is a directory"


def test_damage_that_reading_does_not_meet(positions: Positions, path: str) -> None:
    """After an unclean stop the whole database is looked through."""
    positions.save(checkpoint(1))
    positions.close(False)
    connection = sqlite3.connect(path)
    (page,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_topic_1'"
    ).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert load(path) == SavedState(lost=True)


def test_someone_else_holds_it_at_start(positions: Positions, path: str) -> None:
    """That is no damage: nothing is set aside."""
    positions.save(checkpoint(1))
    positions.close(False)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendError, match="locked"):
        load(path)
    other.execute("ROLLBACK")
    other.close()
    assert numbers(load(path)) == {1}


def test_a_cut_that_cannot_be_saved(positions: Positions, path: str) -> None:
    """Nothing of it is; the next one can be."""
    positions.save(checkpoint(1))
    bad = checkpoint(2)
    bad.deleted_topics = ["s"]
    bad.topics[1].cursors.append(CursorState("e", next=None))  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="NOT NULL"):
        positions.save(bad)
    assert numbers(load(path)) == {1}
    positions.save(checkpoint(3))
    assert numbers(load(path)) == {3}


def test_someone_else_holds_it(positions: Positions, path: str) -> None:
    """An error, not damage: what could not be saved now is saved later."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendError, match="locked"):
        positions.save(checkpoint(1))
    with pytest.raises(BackendError, match="locked"):
        positions.reserve(1)
    other.execute("ROLLBACK")
    other.close()
    positions.save(checkpoint(2))
    assert numbers(load(path)) == {2}


def test_a_full_disk(positions: Positions, path: str) -> None:
    """Nothing of the cut is saved; it can be saved again when there is space; new names too."""
    positions.save(checkpoint(1))
    connection = positions._connection
    assert connection is not None
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = checkpoint(2)
    rows = [PendingRow(n, 1, 0) for n in range(5000)]
    large.deleted_topics = ["t"]
    large.topics.append(TopicState("new", cursors=[CursorState("e", pending=rows, pending_count=5000)]))
    for _ in range(2):
        with pytest.raises(BackendFull, match="full"):
            positions.save(large)
        assert numbers(load(path)) == {1}
    connection.execute("PRAGMA max_page_count = 1000000")
    positions.save(large)
    saved = load(path)
    assert [topic.name for topic in saved.topics] == ["s", "t", "new"]
    assert len(saved.topics[2].cursors[0].pending) == 5000


def test_a_full_disk_at_start(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no fresh database can be made, the damaged one stays in its place, and the next start knows of it."""
    connect = sqlite3.connect

    def connect_to_full_disk(database: str, **options: Any) -> sqlite3.Connection:
        connection = connect(database, **options)
        try:
            connection.execute("PRAGMA max_page_count = 2")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    Path(path).write_bytes(b"no database at all")
    monkeypatch.setattr(sqlite3, "connect", connect_to_full_disk)
    with pytest.raises(BackendError):
        load(path)
    monkeypatch.undo()
    assert Path(path).read_bytes() == b"no database at all"
    assert load(path).lost


def test_a_full_disk_does_not_prevent_the_start(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening writes; the space for that is kept."""
    connect, spare = sqlite3.connect, Path(f"{path}.spare")

    def connect_if_there_is_space(database: str, **options: Any) -> sqlite3.Connection:
        if spare.exists():
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        return connect(database, **options)

    positions = Positions(path)
    positions.load()
    positions.save(checkpoint(1))
    positions.close(True)
    spare.touch()
    monkeypatch.setattr(sqlite3, "connect", connect_if_there_is_space)
    positions = Positions(path)
    assert numbers(positions.load()) == {1}
    positions.close(True)


def test_it_is_closed(positions: Positions) -> None:
    """Whoever comes too late gets an error; closing twice does no harm."""
    positions.close(True)
    positions.close(True)
    with pytest.raises(BackendError, match="closed"):
        positions.save(checkpoint(1))
    with pytest.raises(BackendError, match="closed"):
        positions.unfinished("t")


def test_the_lazy_answer_is_an_error_when_it_fails(positions: Positions) -> None:
    """Not one of sqlite3's."""
    positions.save(checkpoint(9))
    answer = positions.unfinished("t")
    assert answer is not None
    positions.close(False)
    with pytest.raises(BackendError):
        list(answer[1])


def test_blocks_are_reserved_while_a_cut_is_saved(positions: Positions, path: str) -> None:
    """From two threads; both are there."""
    failures: list[BaseException] = []

    def save() -> None:
        try:
            for number in range(1, 60):
                positions.save(checkpoint(number))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    for block in range(1, 60):
        positions.reserve(block)
    thread.join()
    assert failures == []
    saved = load(path)
    assert (saved.next_block, numbers(saved)) == (59, {59})


def test_a_full_disk_takes_a_save_with_the_space_kept_for_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = Positions(str(tmp_path / "positions.db"))
    positions.load()
    spare = tmp_path / "positions.db.spare"
    positions.save(Checkpoint(topics=[TopicState("t")]))
    assert spare.stat().st_size == SPARE_BYTES
    save, free_when_saved = Positions._save, []

    def save_if_there_is_space(self: Positions, checkpoint: Checkpoint) -> None:
        free_when_saved.append(not spare.exists())
        if spare.exists():
            raise BackendFull("positions.db: database or disk is full")
        save(self, checkpoint)

    with monkeypatch.context() as patches:
        patches.setattr(Positions, "_save", save_if_there_is_space)
        positions.save(Checkpoint(topics=[TopicState("t", released=7)]))
        assert free_when_saved == [False, True]
    positions.save(Checkpoint(topics=[TopicState("t", released=8)]))
    assert spare.exists(), "there is space again"
    positions.close(True)
