"""Connections to databases of SQLite whose files may be damaged."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import quote


class Connection(sqlite3.Connection):
    """
    A connection that leaves transactions to the caller. It raises sqlite3.Error only.

    The module sqlite3 puts SQLite's words into its exceptions. Words that name a damaged table may be no UTF-8, and
    then it raises UnicodeDecodeError.
    """

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """As the method of sqlite3.Connection."""
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError as error:
            raise _of(error) from error

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """As the method of sqlite3.Connection."""
        try:
            return super().executemany(sql, parameters)
        except UnicodeDecodeError as error:
            raise _of(error) from error

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        """As the method of sqlite3.Connection."""
        try:
            return super().executescript(sql_script)
        except UnicodeDecodeError as error:
            raise _of(error) from error


def connect(path: str, timeout: float = 5.0) -> Connection:
    """Open a database, which waits up to `timeout` seconds for others that write. sqlite3.Error."""
    return _connect(path, timeout=timeout)


def connect_read_only(path: str) -> Connection:
    """Open a database and leave the file, and its log of changes, as they are. sqlite3.Error."""
    return _connect(f"file:{quote(path)}?mode=ro", uri=True)


def _connect(name: str, **named: Any) -> Connection:
    return sqlite3.connect(name, isolation_level=None, check_same_thread=False, factory=Connection, **named)


def corrupt(text: str) -> sqlite3.DatabaseError:
    """Return the error of a damaged database (SQLITE_CORRUPT), where SQLite itself has not noticed the damage."""
    error = sqlite3.DatabaseError(text)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _of(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    return corrupt(error.object.decode("utf-8", "backslashreplace"))
