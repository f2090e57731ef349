"""
Damage to the files of a data path. An input is a list of edits:

    edit := u8 which | u8 how | u32 place | u8 length | `length` bytes        big-endian; what is cut off is no edit

`which` is a file, counted in the order of their names, or the database, whose rows are then changed by SQL: damage that
SQLite cannot notice.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.targets.directory import read, write

_HEAD = struct.Struct(">BBIB")
_MOST_EDITS = 8
_OF_ROWS = 0xD0
"""From here on `which` means rows."""
_ODD_VALUES: tuple[object, ...] = (
    *(None, 0, 1, -1, 2, 617, 2**31, 2**53, 2**53 - 1, 2**62, 2**63 - 1, -(2**63), 1.5, float("inf"), "", "x", "t"),
    *("../../x", "\0", "a" * 70, "c", b"", b"\0" * 7, b"\xff" * 8, b"\xff" * 16, b"\xff" * 24, b"\0" * 16, b"\0" * 24),
    *(struct.pack("<3Q", 0, 2**62, 0), struct.pack("<3Q", 0, 1 << 30, 1), struct.pack("<3Q", 2**53, 1, 2**63)),
    *(struct.pack("<2Q", 0, 2**63), struct.pack("<2Q", 9, 3), struct.pack("<Q", 3) * 3, struct.pack("<Q", 2**60)),
    b"x" * 4000,
)


class Edit(NamedTuple):
    """One change."""

    which: int
    how: int
    place: int
    data: bytes

    @property
    def is_of_rows(self) -> bool:
        return self.which >= _OF_ROWS

    def encode(self) -> bytes:
        return _HEAD.pack(self.which, self.how, self.place & 0xFFFF_FFFF, len(self.data)) + self.data


def made(chance: Random, *, of_rows: float) -> bytes:
    """Some edits; of them this part change rows."""
    edits = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        is_of_rows = chance.random() < of_rows
        which = _OF_ROWS if is_of_rows else chance.randrange(12)
        data = chance.randbytes(chance.choice((1, 1, 2, 4, 8, 60)))
        edits.append(Edit(which, chance.randrange(256), chance.randrange(1 << 32), data).encode())
    return b"".join(edits)


def edits_of(data: bytes) -> Iterator[Edit]:
    """The edits that an input is."""
    at = 0
    for _ in range(_MOST_EDITS):
        if len(data) - at < _HEAD.size:
            return
        which, how, place, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Edit(which, how, place, data[at : at + length])
        at += length


def damage(files: dict[str, bytes], edits: Sequence[Edit], to: Path, database: str = "") -> None:
    """Write `files` to a directory, with the edits done, those of rows first."""
    write(files, to)
    of_rows = [edit for edit in edits if edit.is_of_rows]
    if database and of_rows:
        _change_rows(to / database, of_rows)
    files = read(to)
    names = list(files)
    for edit in edits:
        if not edit.is_of_rows:
            name = names[edit.which % len(names)]
            changed = _changed(files[name], edit)
            if changed is None:
                (to / name).unlink(missing_ok=True)
            else:
                files[name] = changed
                (to / name).write_bytes(changed)


def _changed(data: bytes, edit: Edit) -> bytes | None:
    """None for a file that is gone."""
    at = edit.place % (len(data) + 1)
    new = edit.data
    how = edit.how % 11
    if how == 0:
        return data[:at] + bytes([data[at] ^ 1 << (edit.how >> 4) % 8]) + data[at + 1 :] if at < len(data) else data
    if how <= 3:
        return data[:at] + new + data[at + len(new) :]
    if how == 4:
        return data[:at] + new + data[at:]
    if how == 5:
        return data[:at] + data[at + len(new) :]
    if how == 6:
        return data[:at]
    if how == 7:
        return data + new * (1 + edit.place % 50)
    if how == 8:
        return data[:at] + bytes(512) + data[at + 512 :]
    if how == 9:
        other = (edit.place >> 16) % (len(data) + 1)
        return data[:at] + data[other : other + 300] + data[at + 300 :]
    return None if edit.place % 4 == 0 else data[at:]


def _change_rows(path: Path, edits: Sequence[Edit]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table, column in [_column(connection, edit) for edit in edits]:
            edit = edits[0]
            edits = edits[1:]
            with suppress(sqlite3.Error, OverflowError):
                _change(connection, table, column, edit)


def _column(connection: sqlite3.Connection, edit: Edit) -> tuple[str, str]:
    columns = [
        (table, column)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")
    ]
    return columns[edit.place % len(columns)]


def _change(connection: sqlite3.Connection, table: str, column: str, edit: Edit) -> None:
    how = edit.how % 16
    if how == 0:
        connection.execute(f"DELETE FROM {table}")
    elif how == 1:
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    elif how == 2:
        connection.execute(f"DROP TABLE {table}")
    elif how == 3:
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = CAST(x'ff6ec328' AS TEXT)")  # no UTF-8
    elif how == 4:
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (edit.data,))
    elif how == 5:
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {column} + ?", (int.from_bytes(edit.data[:4]),))
    else:
        value = _ODD_VALUES[(edit.place >> 8) % len(_ODD_VALUES)]
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
