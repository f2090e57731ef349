from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nsqtw.backends.connection import Connection, connect, connect_read_only


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A database with a table whose name is no UTF-8."""
    path = str(tmp_path / "damaged.db")
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE a (b)")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET name = CAST(X'd0' AS TEXT), sql = 'CREATE'")
    return path


@pytest.mark.parametrize(
    "use",
    [
        lambda connection: connection.execute("SELECT * FROM a"),
        lambda connection: connection.execute("PRAGMA journal_mode = WAL"),
        lambda connection: connection.executemany("INSERT INTO a VALUES (?)", [(1,)]),
        lambda connection: connection.executescript("SELECT * FROM a"),
    ],
)
@pytest.mark.parametrize("opened_by", [connect, connect_read_only])
def test_words_that_are_no_utf8_are_an_error_of_sqlite(
    damaged: str, opened_by: Callable[[str], Connection], use: Callable[[Connection], object]
) -> None:
    with closing(opened_by(damaged)) as connection:
        with pytest.raises(sqlite3.DatabaseError, match=r"malformed.*\\xd0") as raised:
            use(connection)
        assert raised.value.sqlite_errorcode == sqlite3.SQLITE_CORRUPT
