"""
`nsqd` on a disk that fails when told to, and by a wall clock that can be set: a process of its own, started as

    python faulty_nsqd.py CONTROL FLAG...

CONTROL is a file with a JSON object that is looked at before every call it is about:

    {"wall": 3600, "faults": [{"operation": "write", "path": "positions.db", "error": "ENOSPC"}]}

`wall` are the seconds the clock is wrong by; `operation` is write, read or sync; `path` is a part of the path. The
faults stand at the same places for storage on disk (`Files`) and for SQLite, whose connections report what it would
report. ENOSPC also shows in the free space of the disk.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from typing import Any

CONTROL = sys.argv.pop(1)

real_time, real_time_ns, real_connect = time.time, time.time_ns, sqlite3.connect

_WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "BEGIN;")
_SQLITE_ERRORS = {
    ("write", "ENOSPC"): (sqlite3.SQLITE_FULL, "database or disk is full"),
    ("write", "EDQUOT"): (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
    ("write", "EIO"): (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
    ("read", "EIO"): (sqlite3.SQLITE_IOERR_READ, "disk I/O error"),
    ("sync", "EIO"): (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error"),
}


def control() -> dict[str, Any]:
    with open(CONTROL) as file:
        return json.load(file)


def error_of(operation: str, path: str) -> str | None:
    """The name of the error a call is to fail with."""
    for fault in control()["faults"]:
        if fault["operation"] == operation and fault["path"] in path:
            return fault["error"]
    return None


def meet(operation: str, path: str) -> None:
    name = error_of(operation, path)
    if name is not None:
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))


class FaultyConnection(sqlite3.Connection):
    """A connection to a database whose disk fails."""

    path = ""
    is_durable = False

    def _meet(self, statement: str) -> None:
        words = statement.strip().upper()
        operation = "read" if words.startswith("SELECT") else "write" if words.startswith(_WRITES) else ""
        if words.startswith("PRAGMA SYNCHRONOUS"):
            self.is_durable = "FULL" in words
        if words.startswith("COMMIT") and self.is_durable and error_of("sync", self.path):
            operation = "sync"
        name = error_of(operation, self.path) if operation else None
        if name is not None:
            code, text = _SQLITE_ERRORS[operation, name]
            failure = sqlite3.OperationalError(text)
            failure.sqlite_errorcode = code
            raise failure

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self._meet(statement)
        return super().execute(statement, *values)

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        rows = list(rows)
        if rows:
            self._meet(statement)
        return super().executemany(statement, rows)


def connect(path: str, *arguments: Any, **named: Any) -> sqlite3.Connection:
    connection: FaultyConnection = real_connect(path, *arguments, **named | {"factory": FaultyConnection})
    connection.path = path
    return connection


def break_files() -> None:
    """A class of its own: the methods of `Files` itself cannot be replaced for modules that are compiled with it."""
    from nsqtw.backends.disk import backend as disk
    from nsqtw.backends.files import Files
    from nsqtw.backends.sqlite import backend as sqlite
    from nsqtw.nsqd import nsqd_dat
    from nsqtw.nsqd_import import importer

    class FaultyFiles(Files):
        def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
            meet("write", path_of(fd))
            return super().write(fd, buffers, position)

        def read(self, fd: int, size: int, position: int) -> bytes:
            meet("read", path_of(fd))
            return super().read(fd, size, position)

        def sync(self, fd: int) -> None:
            meet("sync", path_of(fd))
            super().sync(fd)

        def sync_directory(self, path: str) -> None:
            meet("sync", path)
            super().sync_directory(path)

        def free_space(self, path: str) -> tuple[int, int]:
            free, total = super().free_space(path)
            return (0 if error_of("write", path) == "ENOSPC" else free), total

    def open_disk(self: Any, argument: str, directory: str, options: Any, report: Any) -> disk.DiskBackend:
        return disk.DiskBackend(directory, options.max_bytes_per_file, report, FaultyFiles())

    disk.DiskFactory.open = open_disk
    nsqd_dat.Files = sqlite.Files = importer.Files = FaultyFiles  # type: ignore[attr-defined, misc]


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


time.time = lambda: real_time() + control()["wall"]
time.time_ns = lambda: real_time_ns() + int(control()["wall"] * 1e9)
sqlite3.connect = connect  # type: ignore[assignment]

if __name__ == "__main__":
    from nsqtw.tap import main_nsqd

    break_files()
    sys.exit(main_nsqd())
