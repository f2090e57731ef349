"""A spool of the earlier format, a database of SQLite, becomes a folder with all that it has."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from pyspark_nsq.channel import spool_conversion
from pyspark_nsq.channel.spool import Spool
from pyspark_nsq.errors import SpoolError

from tests.spark.spans import rows_of
from tests.spark.test_spool import NOW, append

UUID = "0123456789abcdef0123456789abcdef"
SCHEMA = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('uuid', '{UUID}'), ('end', 0);
CREATE TABLE nsqd(number INTEGER PRIMARY KEY, address TEXT UNIQUE);
CREATE TABLE message(seq INTEGER PRIMARY KEY, nsqd INT, id BLOB, timestamp_ns INT, attempts INT, body BLOB);
CREATE TABLE seen(nsqd INT, id BLOB, at INT, PRIMARY KEY(nsqd, id)) WITHOUT ROWID;
CREATE INDEX seen_at ON seen(at);
PRAGMA user_version = 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The rows 3 to 6 of two nsqds are there; those before are forgotten, and known."""
    path = str(tmp_path / "spool")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA)
    with connection:
        connection.execute("INSERT INTO nsqd VALUES (1, 'a:1'), (2, 'b:1')")
        for seq in range(1, 7):
            row = (seq, 1 + seq // 4, b"%016x" % seq, seq * 10**9, seq, b"body %d" % seq)
            if seq > 2:
                connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", row)
            connection.execute("INSERT INTO seen VALUES (?, ?, ?)", (row[1], row[2], NOW + seq))
        connection.execute("UPDATE meta SET value = 6 WHERE key = 'end'")
    # As after SIGKILL: what is in the WAL is part of the spool.
    copy = sqlite3.connect(path)
    copy.execute("SELECT count(*) FROM message").fetchone()
    connection.close()
    copy.close()
    return path


def check(spool: Spool) -> None:
    assert (spool.uuid, spool.first(), spool.end) == (UUID, 3, 6)
    expected = [
        (seq, "a:1" if seq < 4 else "b:1", b"%016x" % seq, seq * 10**9, seq, b"body %d" % seq) for seq in range(3, 7)
    ]
    assert expected == [tuple(row) for row in rows_of(spool.spans(2, 6))]


def test_all_that_it_has_is_there(path: str, tmp_path: Path) -> None:
    spool = Spool.open(path)
    check(spool)
    assert append(spool, 1, 2, 3) + append(spool, 4, 5, 6, nsqd="b:1") == 0, "known before, known now"
    assert append(spool, 4) == 1
    spool.close()
    assert [one.name for one in tmp_path.iterdir()] == ["spool"], "the database is gone"
    assert Spool.open(path).end == 7


def test_a_message_that_came_again_after_the_window_is_there_twice(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE message SET id = ? WHERE seq = 6", (b"%016x" % 4,))
    connection.close()
    for _ in range(2):
        spool = Spool.open(path)
        assert [int(row.id, 16) for row in rows_of(spool.spans(2, 6))] == [3, 4, 5, 4]
        spool.close()
    assert append(Spool.open(path), 4, nsqd="b:1") == 0


def test_ids_are_known_no_longer_than_before(path: str) -> None:
    spool = Spool.open(path)
    spool.forget(6, before=NOW + 7)
    assert append(spool, 1, at=NOW + 8) == 1


def test_an_empty_one(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM message")
    connection.close()
    spool = Spool.open(path)
    assert (spool.first(), spool.end) == (7, 6)


@pytest.mark.parametrize("step", ["_fill", "rename 1", "rename 2", "unlink"])
def test_a_crash_on_the_way(path: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it had done, the next start has all rows."""
    renames = 0
    rename, fill = Path.rename, spool_conversion._fill

    def fill_and_crash(folder: Path, database: Path) -> None:
        fill(folder, database)
        raise KeyboardInterrupt

    def rename_or_crash(source: Path, target: Path) -> Path:
        nonlocal renames
        if source.name.startswith("spool"):  # not the files inside
            renames += 1
            if step == f"rename {renames}":
                raise KeyboardInterrupt
        return rename(source, target)

    def crash(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr(Path, "rename", rename_or_crash)
        if step == "_fill":
            patches.setattr(spool_conversion, "_fill", fill_and_crash)
        if step == "unlink":
            patches.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            Spool.open(path)
    check(Spool.open(path))


def test_a_database_that_is_no_spool(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs") as theirs:
        theirs.execute("CREATE TABLE t(x)")
    with pytest.raises(SpoolError, match="theirs is a file, and no spool"):
        Spool.open(str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").is_file()


def test_a_damaged_database_stays_where_it_is(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    Path(path).write_bytes(data)
    with pytest.raises(SpoolError, match=r"spool: database disk image is malformed|is a file"):
        Spool.open(path)
    assert bytes(data[4096:]) == Path(path).read_bytes()[4096:]
