"""
Survey of `messages.db` at its opening: its topics, and the first and last sequence of each.

Any value in it may be odd. One that can be told from the rows is; a row that cannot be found by its place is reported
here, because no read will come by it. sqlite3.DatabaseError (SQLITE_CORRUPT) when the database itself is broken where
it is looked at: all of this is in the table of topics and in the index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from attrs import define

from nsqtw.backends.sqlite.rows import read_row
from nsqtw.backends.sqlite.schema import FILE
from nsqtw.core.segment import SEQUENCE_BITS
from nsqtw.interfaces import Report
from nsqtw.names import is_valid_name

HIGHEST = 1 << SEQUENCE_BITS

_TOPICS = "SELECT id, name, end_sequence, bytes FROM topic WHERE name IS NOT NULL ORDER BY id"
_FIRST = "SELECT first FROM segment WHERE topic = ? AND last >= 0 AND last < ? ORDER BY last LIMIT 1"
_NEWEST = "SELECT id FROM segment WHERE topic = ? AND last >= 0 AND last < ? ORDER BY last DESC LIMIT 100"
_BYTES = "SELECT ifnull(sum(length(frames)), 0) FROM segment WHERE topic = ?"
_OUTSIDE = """
SELECT id FROM segment WHERE topic = ? AND last < 0 UNION ALL SELECT id FROM segment WHERE topic = ? AND last >= ?
    UNION ALL SELECT id FROM segment WHERE topic = ? AND last IS NULL
"""
_OF_NO_TOPIC = """
SELECT id FROM segment WHERE topic < 0 UNION ALL SELECT id FROM segment WHERE topic > ?
    UNION ALL SELECT id FROM segment WHERE topic IS NULL
"""


@define
class SurveyedTopic:
    topic_id: int
    name: str
    first: int
    end: int
    bytes: int
    is_invalid: bool = False
    """The database contradicts itself about the topic."""


def survey(connection: sqlite3.Connection, report: Report) -> dict[str, SurveyedTopic]:
    """All topics with a name, by name."""
    topics: dict[str, SurveyedTopic] = {}
    highest = 0
    for topic_id, name, end, size in connection.execute(_TOPICS).fetchall():
        highest = max(highest, topic_id)
        if not isinstance(name, str) or not is_valid_name(name):
            report("", f"{FILE} topic {topic_id}", 0, HIGHEST - 1, "the name of the topic is damaged")
            continue
        topic = topics[name] = _topic(connection, topic_id, name, end, size)
        for row_id in _ids(connection, _OUTSIDE, topic_id, topic_id, topic.end, topic_id):
            report(name, f"{FILE} segment {row_id}", topic.first, topic.end - 1, "it is not where it was stored")
    for row_id in _ids(connection, _OF_NO_TOPIC, highest):
        report("", f"{FILE} segment {row_id}", 0, HIGHEST - 1, "it belongs to no topic")
    return topics


def find_topic(connection: sqlite3.Connection, name: str) -> SurveyedTopic | None:
    """One topic, if there is such a one."""
    row = connection.execute("SELECT id, end_sequence, bytes FROM topic WHERE name = ?", (name,)).fetchone()
    return _topic(connection, row[0], name, row[1], row[2]) if row is not None else None


def first_of(connection: sqlite3.Connection, topic_id: int, end: int) -> int:
    """The lowest sequence that may be kept of a topic that ends at `end`."""
    row = connection.execute(_FIRST, (topic_id, end)).fetchone()
    if row is None:
        return end
    return row[0] if type(row[0]) is int and 0 <= row[0] < end else 0


def newest_end(connection: sqlite3.Connection, topic_id: int) -> int:
    """One past the last sequence of the newest good row of a topic; 0 when there is none among the newest hundred."""
    for row_id in _ids(connection, _NEWEST, topic_id, HIGHEST):
        try:
            row = read_row(connection, row_id)
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            continue
        if not row.fault():
            return int(row.last) + 1
    return 0


def is_corrupt(error: sqlite3.Error) -> bool:
    """Return whether a page is not what SQLite wrote, rather than the disk refusing it."""
    # A text that cannot be decoded is an error of the module, and has no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF == sqlite3.SQLITE_CORRUPT


def is_failed_sync(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)


def _topic(connection: sqlite3.Connection, topic_id: int, name: str, end: object, size: object) -> SurveyedTopic:
    rows_end = newest_end(connection, topic_id)
    known_end = end if type(end) is int and rows_end <= end < HIGHEST else None
    known_size = size if type(size) is int and size >= 0 else None
    is_invalid = known_end is None or known_size is None
    if known_size is None:
        known_size = connection.execute(_BYTES, (topic_id,)).fetchone()[0]
    found_end = rows_end if known_end is None else known_end
    return SurveyedTopic(topic_id, name, first_of(connection, topic_id, found_end), found_end, known_size, is_invalid)


def _ids(connection: sqlite3.Connection, query: str, *values: int) -> Iterator[int]:
    return (row_id for (row_id,) in connection.execute(query, values).fetchall())
