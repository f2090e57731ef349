"""
Arrays as PostgreSQL reads them in binary. psycopg would choose the type of each list by its values, so that a
statement would be prepared once for each combination; and it is slower.

    dimensions = 1   has NULLs = 0   type of the items   count   lower bound = 1     u32 each
    length of an item   item   ...                                                   u32, bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">5I")
_LENGTH = struct.Struct(">I")
_BYTEA, _BIGINT, _TEXT = 17, 20, 25


class _Encoded:
    """Encoded items."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Bytes(_Encoded):
    """Items of the type bytea."""

    def __init__(self, items: Sequence[bytes]) -> None:
        super().__init__(_joined(_BYTEA, items))


class Texts(_Encoded):
    """Items of the type text."""

    def __init__(self, items: Iterable[str]) -> None:
        super().__init__(_joined(_TEXT, [item.encode() for item in items]))


class Numbers(_Encoded):
    """Items of the type bigint."""

    def __init__(self, items: Sequence[int]) -> None:
        count = len(items)
        parts = [8] * (2 * count)
        parts[1::2] = items
        super().__init__(_head(_BIGINT, count) + struct.pack(">" + "Iq" * count, *parts))


class Number:
    """A bigint, whatever its value."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Encoded) -> bytes:
        return obj.data


class _BytesDumper(_ArrayDumper):
    oid = 1001


class _TextsDumper(_ArrayDumper):
    oid = 1009


class _NumbersDumper(_ArrayDumper):
    oid = 1016


class _NumberDumper(Dumper):
    format = Format.BINARY
    oid = _BIGINT

    def dump(self, obj: Number) -> bytes:
        return struct.pack(">q", obj.value)


def register_arrays(connection: Connection[tuple[object, ...]]) -> None:
    """Let the parameters of statements on a connection be of these classes."""
    for of, dumper in ((Bytes, _BytesDumper), (Texts, _TextsDumper), (Numbers, _NumbersDumper)):
        connection.adapters.register_dumper(of, dumper)
    connection.adapters.register_dumper(Number, _NumberDumper)


def _head(kind: int, count: int) -> bytes:
    # An empty array has no dimension.
    return _HEAD.pack(1, 0, kind, count, 1) if count else _HEAD.pack(0, 0, kind, 0, 0)[:12]


def _joined(kind: int, items: Sequence[bytes]) -> bytes:
    parts: list[bytes] = [b""] * (2 * len(items))
    parts[0::2] = map(_LENGTH.pack, map(len, items))
    parts[1::2] = items
    return b"".join([_head(kind, len(items)), *parts])
