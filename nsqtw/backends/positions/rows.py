"""
The rows of `positions.db` and their meaning; invalid values are detected here, whatever wrote them.

A topic with such a value, in its own row or in one of its channels', is removed from the database; its name and those
of its channels are kept: they start at the oldest message, which repeats messages and loses none. An invalid pending
row costs at most itself: one with an invalid time is due at once, one with an invalid sequence is removed. Finding
these needs no scan: in the order of an index invalid values come before or behind all others. Only invalid attempts,
and fractions, are found when a row is read.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any

from nsqtw.core.checkpoint import CursorState, NamedChannel, NamedTopic, PendingRow, SavedState, TopicState, Waiting
from nsqtw.core.segment import SEQUENCE_MASK
from nsqtw.options.topics import DURABILITIES, is_retention_time

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
_MAX_TOTAL = (1 << 62) - 1
_MAX_ATTEMPTS = 0xFFFF
_MAX_INTEGER = (1 << 63) - 1
_NOWHERE = [
    f"DELETE FROM held WHERE cursor = ? AND {where}"
    for where in ("sequence < 0", f"sequence > {SEQUENCE_MASK}", "sequence IS NULL")
]
_NEVER = [
    f"UPDATE held SET due_ms = 0 WHERE cursor = ? AND {when}"
    for when in ("due_ms < 0", f"due_ms > {LATEST_MS}", "due_ms IS NULL")
]
_COUNT_PENDING = "UPDATE cursor SET held_count = (SELECT count(*) FROM held WHERE held.cursor = cursor.id) WHERE id = ?"


class InvalidRowError(ValueError):
    """A value that nsqtw never wrote."""


def read_topics(connection: sqlite3.Connection, saved: SavedState) -> None:
    """
    Fill in the topics and cursors, and remove those that make no sense. InvalidRowError when that cannot be told from
    others.
    """
    topics: dict[int, TopicState] = {}
    invalid: dict[int, str] = {}
    names: dict[int, str] = {}
    for row in connection.execute("SELECT * FROM topic ORDER BY id"):
        number, name = _integer(row[0], "topic id"), row[1]
        if not isinstance(name, str) or name in names.values():
            raise InvalidRowError(f"a topic has the name {name!r}")
        names[number] = name
        try:
            topics[number] = _topic(row)
        except InvalidRowError as why:
            invalid[number] = str(why)
    channels: dict[int, list[NamedChannel]] = {number: [] for number in names}
    for row in connection.execute("SELECT * FROM cursor ORDER BY id"):
        number, topic, name = _integer(row[0], "cursor id"), row[1], row[2]
        if topic not in names or not isinstance(name, str):
            raise InvalidRowError(f"a channel has the name {name!r} and belongs to topic {topic!r}")
        if name in [channel.name for channel in channels[topic]]:
            raise InvalidRowError(f"a topic has the channel {name!r} twice")
        channels[topic].append(NamedChannel(name, row[3] == 1))
        if topic not in invalid:
            try:
                topics[topic].cursors.append(_cursor(row, topics[topic]))
            except InvalidRowError as why:
                invalid[topic] = f"channel {name}: {why}"
    for number, reason in invalid.items():
        saved.invalid.append(f"TOPIC({names[number]}): {reason}: its channels start at the oldest message kept")
        saved.lost_topics.append(NamedTopic(names[number], channels=tuple(channels[number])))
        topics.pop(number, None)
        _remove_topic(connection, number)
    saved.topics = list(topics.values())


def repair_pending(connection: sqlite3.Connection, saved: SavedState) -> None:
    """Remove pending rows without a channel or message, and make those with an impossible due time due at once."""
    counts = dict(connection.execute("SELECT id, held_count FROM cursor").fetchall())
    for number in list(_cursors_of_pending(connection)):
        if number in counts:
            _repair_pending_of(connection, number, saved)
        else:
            count = connection.execute("DELETE FROM held WHERE cursor IS ?", (number,)).rowcount
            saved.invalid.append(f"{count} held messages belong to no channel: they are left out")
        if not counts.pop(number, None):
            _count_pending(connection, number)
    for number, pending_count in counts.items():
        if pending_count:
            saved.invalid.append(f"{pending_count} held messages of a channel are missing")
            _count_pending(connection, number)


def _repair_pending_of(connection: sqlite3.Connection, number: int, saved: SavedState) -> None:
    removed = sum(connection.execute(statement, (number,)).rowcount for statement in _NOWHERE)
    if removed:
        _count_pending(connection, number)
        saved.invalid.append(f"{removed} held messages have no place in a log: they are left out")
    repaired = sum(connection.execute(statement, (number,)).rowcount for statement in _NEVER)
    if repaired:
        saved.invalid.append(f"{repaired} held messages are due at no possible time: they are due at once")


def _count_pending(connection: sqlite3.Connection, number: int) -> None:
    connection.execute(_COUNT_PENDING, (number,))


def pending_row(sequence: Any, attempts: Any, due_ms: Any) -> PendingRow:
    """A row as it was read, mended where its values are odd. Sequence 0 is no message's: it will be found lost."""
    if type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MASK:
        sequence = 0
    if type(attempts) is not int or not 0 <= attempts <= _MAX_ATTEMPTS:
        attempts = 0
    if type(due_ms) is not int:
        due_ms = int(due_ms) if isinstance(due_ms, float) and 0 <= due_ms <= LATEST_MS else 0
    return PendingRow(sequence, attempts, due_ms)


def topic_row(number: int, topic: TopicState) -> tuple[Any, ...]:
    dropped = _blob([end for run in topic.dropped for end in run])
    waiting = _blob([number for run in topic.waiting for number in (run.first, run.count, run.delay_ms)])
    totals = (topic.released, topic.released_total, topic.end, topic.put_total)
    marks, runs = (_blob(list(chain.from_iterable(part))) for part in (topic.marks, topic.runs))
    retention = (topic.retention_time, topic.retention_bytes, topic.floor, marks, runs)
    return (number, topic.name, topic.paused, *totals, dropped, waiting, topic.durability, *retention)


def cursor_row(number: int, topic: int, cursor: CursorState) -> tuple[Any, ...]:
    first_deliveries = _blob(cursor.first_deliveries)
    place = (cursor.next, cursor.taken_total, first_deliveries, cursor.pending_count, cursor.replays)
    return (number, topic, cursor.name, cursor.paused, *place)


def numbers_in(blob: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(blob) // 8}Q", blob))


def _topic(row: tuple[Any, ...]) -> TopicState:
    _, name, paused, released, released_total, end, put_total, dropped, waiting, durability = row[:10]
    if durability not in ("", *DURABILITIES):
        raise InvalidRowError(f"it has the durability {durability!r}")
    runs = _groups(waiting, "waiting", SEQUENCE_MASK, SEQUENCE_MASK, LATEST_MS)
    topic = TopicState(
        name,
        paused=_integer(paused, "paused", 1) == 1,
        released=_integer(released, "released", SEQUENCE_MASK),
        released_total=_integer(released_total, "released_total", _MAX_TOTAL),
        end=_integer(end, "end", SEQUENCE_MASK),
        put_total=_integer(put_total, "put_total", _MAX_TOTAL),
        dropped=[(first, end) for first, end in _groups(dropped, "dropped", SEQUENCE_MASK, SEQUENCE_MASK)],
        waiting=[Waiting(*run) for run in runs],
        durability=durability,
    )
    _add_retention(topic, row[10:])
    if topic.released_total > topic.put_total:
        raise InvalidRowError(f"{topic.released_total} messages were released and {topic.put_total} put")
    if topic.waiting and not _can_wait(topic):
        raise InvalidRowError("messages wait for release that cannot be")
    return topic


def _can_wait(topic: TopicState) -> bool:
    """Return whether the waiting deferred messages are among those that exist: too long a run is endless work."""
    at = topic.released
    for run in topic.waiting:
        if run.first < at:
            return False
        at = run.first + run.count
    return at <= topic.end and sum(run.count for run in topic.waiting) <= topic.put_total - topic.released_total


def _add_retention(topic: TopicState, row: tuple[Any, ...]) -> None:
    time, size, floor, marks, runs = row
    if time is not None and not (isinstance(time, float) and is_retention_time(time)):
        raise InvalidRowError(f"it has the retention {time!r}"[:100])
    topic.retention_time = time
    topic.retention_bytes = None if size is None else _integer(size, "retention_bytes")
    topic.floor = None if floor is None else _integer(floor, "floor", SEQUENCE_MASK)
    found = _groups(marks, "marks", SEQUENCE_MASK, _MAX_TOTAL, _MAX_TOTAL)
    topic.marks = [(sequence, until_ms, size) for sequence, until_ms, size in found]
    topic.runs = [(sequence, count) for sequence, count in _groups(runs, "runs", SEQUENCE_MASK, _MAX_TOTAL)]


def _cursor(row: tuple[Any, ...], topic: TopicState) -> CursorState:
    _, _, name, paused, following, taken_total, first_deliveries, pending_count, replays = row
    cursor = CursorState(
        name,
        paused=_integer(paused, "paused", 1) == 1,
        next=_integer(following, "next", SEQUENCE_MASK),
        taken_total=_integer(taken_total, "taken_total", _MAX_TOTAL),
        first_deliveries=[sequence for (sequence,) in _groups(first_deliveries, "first_deliveries", SEQUENCE_MASK)],
        pending_count=_integer(pending_count, "held_count", _MAX_TOTAL),
        replays=_integer(replays, "replays", SEQUENCE_MASK),
    )
    if len({*cursor.first_deliveries}) < len(cursor.first_deliveries):
        raise InvalidRowError("a message is in flight twice")
    return cursor


def _integer(value: Any, what: str, high: int = _MAX_INTEGER) -> int:
    if type(value) is not int or not 0 <= value <= high:
        raise InvalidRowError(f"{what} is {value!r}"[:100])
    return value


def _groups(blob: Any, what: str, *highs: int) -> list[tuple[int, ...]]:
    """Return the numbers in groups; the numbers of each are at most `highs`."""
    if not isinstance(blob, bytes) or len(blob) % (8 * len(highs)):
        raise InvalidRowError(f"{what} is no list of numbers")
    numbers = numbers_in(blob)
    columns = [numbers[place :: len(highs)] for place in range(len(highs))]
    for column, high in zip(columns, highs, strict=True):
        if max(column, default=0) > high:
            raise InvalidRowError(f"{what} has the number {max(column)}")
    return [*zip(*columns, strict=True)]


def _blob(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _remove_topic(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM held WHERE cursor IN (SELECT id FROM cursor WHERE topic = ?)", (number,))
    connection.execute("DELETE FROM cursor WHERE topic = ?", (number,))
    connection.execute("DELETE FROM topic WHERE id = ?", (number,))


def _cursors_of_pending(connection: sqlite3.Connection) -> Iterator[Any]:
    """Return the cursors that have pending rows, each with one look into the index."""
    if connection.execute("SELECT 1 FROM held WHERE cursor IS NULL LIMIT 1").fetchone():
        yield None
    row = connection.execute("SELECT cursor FROM held WHERE cursor IS NOT NULL ORDER BY cursor LIMIT 1").fetchone()
    while row:
        yield row[0]
        row = connection.execute("SELECT cursor FROM held WHERE cursor > ? ORDER BY cursor LIMIT 1", row).fetchone()
