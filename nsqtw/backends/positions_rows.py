"""
The rows of positions.db: what is written into them, and whether what is read is something that we could have written.

SQLite has no checksums, so a bit that flips in a row is no damage to it. A number that no broker writes is refused,
before somebody counts up to it.
"""

from __future__ import annotations

import sqlite3
import struct
from typing import Any

from nsqtw.core.cut import HeldRow, SavedCursor, SavedTopic, Waiting
from nsqtw.core.intake import BLOCK_SIZE
from nsqtw.names import is_valid_name
from nsqtw.topic_rules import DURABILITIES

_MOST = 1 << 53
"""No number in the tables is as large: sequences have 53 bits, and moments in ms are far below."""
_MOST_BLOCKS = 2 * _MOST // BLOCK_SIZE
_MOST_IN_RUN = 1 << 16
"""A run of deferred messages is what one segment has, which is cut at 256 KB."""


def read_topics(connection: sqlite3.Connection) -> list[SavedTopic]:
    """All there is, in a database with these tables. ValueError, TypeError, KeyError, struct.error, sqlite3.Error."""
    topics: dict[int, SavedTopic] = {}
    rows = connection.execute("SELECT * FROM topic ORDER BY id")
    for number, name, paused, released, released_total, end, put_total, dropped, waiting, durability in rows:
        _check_name(name)
        _check_numbers(paused, released, released_total, end, put_total, *numbers(dropped), *numbers(waiting))
        topics[number] = SavedTopic(
            name=name,
            paused=bool(paused),
            released=released,
            released_total=released_total,
            end=end,
            put_total=put_total,
            dropped=list(struct.iter_unpack("<2Q", dropped)),
            waiting=[_run(*run) for run in struct.iter_unpack("<3Q", waiting)],
            durability=_class(durability),
        )
    cursors: dict[int, SavedCursor] = {}
    for number, topic, name, paused, following, taken_total, first_deliveries in connection.execute(
        "SELECT * FROM cursor ORDER BY id"
    ):
        _check_name(name)
        in_flight = numbers(first_deliveries)
        _check_numbers(paused, following, taken_total, *in_flight)
        cursors[number] = SavedCursor(
            name=name,
            paused=bool(paused),
            next=following,
            taken_total=taken_total,
            first_deliveries=in_flight,
        )
        topics[topic].cursors.append(cursors[number])
    for number, sequence, attempts, due_ms in connection.execute("SELECT * FROM held"):
        if not 0 <= sequence | attempts | due_ms < _MOST:
            raise ValueError(f"a number out of bounds in held, {sequence}")
        cursors[number].held.append(HeldRow(sequence, attempts, due_ms))
    return list(topics.values())


def _check_numbers(*numbers: int) -> None:
    """Each is one that we could have written. ValueError, TypeError."""
    for number in numbers:
        if not 0 <= number | 0 < _MOST:  # `|` takes no float, which a comparison would
            raise ValueError(f"a number out of bounds, {number}")


def _check_name(name: str) -> None:
    if not is_valid_name(name):
        raise ValueError(f"{name!r} is no name")


def _class(durability: str) -> str:
    if durability and durability not in DURABILITIES:
        raise ValueError(f"{durability!r} is no durability class")
    return durability


def _run(first: int, count: int, delay_ms: int) -> Waiting:
    if count > _MOST_IN_RUN:
        raise ValueError(f"a run of {count} deferred messages")
    return Waiting(first, count, delay_ms)


def topic_row(number: int, topic: SavedTopic) -> tuple[Any, ...]:
    """What is written of a topic."""
    dropped = _blob([end for run in topic.dropped for end in run])
    waiting = _blob([number for run in topic.waiting for number in (run.first, run.count, run.delay_ms)])
    totals = (topic.released, topic.released_total, topic.end, topic.put_total)
    return (number, topic.name, topic.paused, *totals, dropped, waiting, topic.durability)


def cursor_row(number: int, topic: int, cursor: SavedCursor) -> tuple[Any, ...]:
    """What is written of a cursor, but its held rows."""
    first_deliveries = _blob(cursor.first_deliveries)
    return (number, topic, cursor.name, cursor.paused, cursor.next, cursor.taken_total, first_deliveries)


def _blob(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def numbers(blob: bytes) -> list[int]:
    """The numbers of a blob."""
    return list(struct.unpack(f"<{len(blob) // 8}Q", blob))


def check_broker(version: int, next_block: int | None, clean_stop: int) -> None:
    """Whether the one row of the table broker is one that we could have written. ValueError, TypeError."""
    _check_numbers(version, clean_stop, 0 if next_block is None else next_block)
    if next_block is not None and next_block > _MOST_BLOCKS:
        raise ValueError(f"block {next_block} of sequences")
