"""
messages.db, the storage of the backend sqlite: whether it is a database, and every row of it.

It is read where it stands, through a second name of it beside a copy of its log of changes, so that nothing is written
into the data path; where there can be no second name, through a copy.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Container, Iterator
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory

from attrs import define, field

from nsqtw.backends.connection import connect_read_only
from nsqtw.backends.disk.salvage import WRONG_HEADERS
from nsqtw.backends.disk.topic_check import TopicLog
from nsqtw.backends.finding import Finding
from nsqtw.backends.sequences import ClassSequences
from nsqtw.backends.sqlite.salvage import FRESH, Salvage, SalvagedRow, salvage
from nsqtw.backends.sqlite.schema import FILE, HEADERS_VERSION, version_of
from nsqtw.errors import BackendError

_MAX_PROBLEMS = 10
_INVALID_VALUE = re.compile(r" value in (segment|topic)\.")
_TAKES_OUT = "takes it out; the database is set aside as it was"
_PUTS_RIGHT = "puts right what its frames tell; the database is set aside as it was"
_ANEW = "writes all that can be read into a new one and sets the old one aside"


@define
class MessagesCheck:
    """The state of messages.db."""

    path: str
    logs: dict[str, TopicLog] = field(factory=dict)
    """The contents of each topic."""
    findings: list[Finding] = field(factory=list)
    records: int = 0
    """Good rows."""
    has_headers: bool = False
    """Its version says that there are messages with headers."""
    is_foreign: bool = False
    """It is no database, or one of a newer version: nothing can be read of it."""

    @property
    def can_be_repaired(self) -> bool:
        return any(finding.remedy is not None for finding in self.findings)


def check_messages(directory: str, by_class: Container[str] = ()) -> MessagesCheck | None:
    """
    Look into the messages.db of a data path; None when there is none. `by_class`: the topics with messages whose
    priorities are looked at. BackendError when that cannot be done.
    """
    check = MessagesCheck(os.path.join(directory, FILE))
    path = check.path
    if not os.path.exists(path):
        path += FRESH  # setting aside was interrupted, and the next start goes on with it
    if not os.path.exists(path):
        return None
    with _read_only(path) as connection:
        try:
            version = version_of(connection)
            if not version:
                return check
            check.has_headers = version == HEADERS_VERSION
            problems = _problems(connection)
            _check_rows(check, salvage(connection), by_class)
        except BackendError as refusal:
            check.is_foreign = True
            check.findings.append(Finding("newer format", check.path, f"{refusal}: a start fails"))
            return check
        except sqlite3.DatabaseError as error:
            check.is_foreign = True
            costs = f"{error}; a start fails, and all messages in it are lost"
            check.findings.append(Finding("unreadable messages", check.path, costs, "sets it aside"))
            return check
    if problems:
        costs = f"{'; '.join(problems)}; what of it costs messages is named here too"
        check.findings.insert(0, Finding("damaged database", check.path, costs, _ANEW))
    return check


def _check_rows(check: MessagesCheck, content: Salvage, by_class: Container[str]) -> None:
    for topic_id, why in content.invalid_topics:
        name = content.topics.get(topic_id, (None, 0))[0]
        costs = f"topic {topic_id}: {why}"
        costs += "; all its messages" if name is None else "; nothing"
        check.findings.append(Finding("damaged topic", check.path, costs, _ANEW, name))
    for topic_id in sorted(content.nameless):
        costs = f"nothing: topic {topic_id} was being deleted; the next start goes on with it"
        check.findings.append(Finding("leftover", check.path, costs))
    for name, end in content.topics.values():
        classes = ClassSequences() if name in by_class else None
        check.logs[name] = TopicLog(name, check.path, database_end=end, classes=classes)
    for row in content.rows():
        _take(check, content, row)


def _take(check: MessagesCheck, content: Salvage, row: SalvagedRow) -> None:
    name = content.topics[row.topic_id][0] if row.topic_id is not None else None
    segment = row.segment
    if segment is not None and name is not None:
        log = check.logs[name]
        (log.deferred if segment.delay_ms else log.at_once).add(segment.first, segment.end, segment.channel)
        if log.classes is not None:
            log.classes.add(segment)
        log.database_end = max(log.database_end, segment.end)
        check.records += 1
    if row.why:
        costs = f"row {row.row_id}: {row.why}"
        if segment is None:
            costs += "; these messages"
        elif row.why == WRONG_HEADERS:
            costs += ", by the broker too"
        else:
            costs += "; the broker passes them over"
        messages = row.messages if segment is None else (segment.first, segment.end - 1)
        remedy = _TAKES_OUT if segment is None else _PUTS_RIGHT
        only = (row.channel if segment is None else segment.channel) or None
        check.findings.append(Finding("damaged record", check.path, costs, remedy, name, only, messages=messages))


def _problems(connection: sqlite3.Connection) -> list[str]:
    """Return the findings of SQLite's own check, without odd values in our rows."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})").fetchall()
    except sqlite3.DatabaseError as error:
        return [str(error)]
    problems = [" ".join(str(row[0]).split()) for row in rows]
    return [line for line in problems if line != "ok" and not _INVALID_VALUE.search(line)]


@contextmanager
def _read_only(path: str) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing. BackendError."""
    with TemporaryDirectory(prefix="nsqtw-fsck-") as scratch:
        name = os.path.join(scratch, FILE)
        try:
            try:
                os.link(path, name)
            except OSError:
                shutil.copyfile(path, name)
            if os.path.exists(f"{path}-wal"):
                shutil.copyfile(f"{path}-wal", f"{name}-wal")
        except OSError as failure:
            raise BackendError(f"copy of {path}: {(failure.strerror or str(failure)).lower()}") from failure
        with closing(connect_read_only(name)) as connection:
            yield connection
