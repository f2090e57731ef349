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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from tempfile import TemporaryDirectory

from attrs import define, field
from zope.interface import implementer

from nsqtw.backends.check import NEWER_CONTENT, BackendCheck, StoredTopic
from nsqtw.backends.connection import connect_read_only
from nsqtw.backends.disk.salvage import WRONG_HEADERS
from nsqtw.backends.files import Files, unlink_all
from nsqtw.backends.finding import Finding
from nsqtw.backends.quarantine import Quarantine
from nsqtw.backends.sequences import ClassSequences
from nsqtw.backends.spare_space import SUFFIX
from nsqtw.backends.sqlite.salvage import FRESH, Salvage, SalvagedRow, rebuild, salvage
from nsqtw.backends.sqlite.schema import FILE, HEADERS_VERSION, version_of
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import CopiedFile, IBackendFiles

_MAX_PROBLEMS = 10
_INVALID_VALUE = re.compile(r" value in (segment|topic)\.")
_TAKES_OUT = "takes it out; the database is set aside as it was"
_PUTS_RIGHT = "puts right what its frames tell; the database is set aside as it was"
_ANEW = "writes all that can be read into a new one and sets the old one aside"


@implementer(IBackendFiles)
class SqliteFiles:
    """messages.db, for `nsqtw fsck` and `nsqtw backup`."""

    def __init__(self, argument: str) -> None:
        if argument:
            raise OptionError(f"the backend 'sqlite' takes no argument, not {argument!r}")

    def check(self, directory: str, ends: Mapping[str, int], by_class: Container[str]) -> MessagesCheck:
        """IBackendFiles API"""
        check = check_messages(directory, by_class)
        names = sorted(os.listdir(directory))
        if FILE in names:
            why = "nothing: messages.db was being set aside"
            check.leftovers = [(os.path.join(directory, name), why) for name in names if name.startswith(FILE + FRESH)]
        return check

    def copied_files(self, directory: str) -> Iterable[CopiedFile]:
        """IBackendFiles API"""
        return [CopiedFile(FILE, "database")]

    def owns(self, name: str) -> bool:
        """IBackendFiles API"""
        return name in (FILE, FILE + FRESH)


@define
class MessagesCheck(BackendCheck):
    """The state of messages.db. It is unreadable when it is no database, or one of a newer version."""

    topics: dict[str, StoredTopic] = field(factory=dict)

    def repairs(self, files: Files, quarantine: Quarantine) -> Iterator[tuple[str, Callable[[], object]]]:
        """BackendCheck API"""
        if any(finding.remedy is not None for finding in self.findings):
            yield "repair of messages.db", lambda: self._repair(files, quarantine)

    def set_aside(self, files: Files, quarantine: Quarantine) -> None:
        """BackendCheck API"""
        self._move(quarantine)
        with suppress(FileNotFoundError):
            files.unlink(self.place + SUFFIX)

    def _repair(self, files: Files, quarantine: Quarantine) -> None:
        """Put a damaged messages.db away, and one with all that can be read of it in its place."""
        fresh = self.place + FRESH
        unlink_all(files, [fresh + suffix for suffix in ("-wal", "-shm", "")])
        if not self.is_unreadable:
            try:
                rebuild(self.place, fresh, lambda *damage: None)
            except sqlite3.Error as error:
                raise BackendError(str(error)) from error
        self._move(quarantine)
        if not self.is_unreadable:
            files.rename(fresh, self.place)
            files.sync_directory(os.path.dirname(self.place))

    def _move(self, quarantine: Quarantine) -> None:
        # The database goes first: without its log of changes it would lack what is in there.
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                quarantine.move(self.place + suffix)


def check_messages(directory: str, by_class: Container[str] = ()) -> MessagesCheck:
    """
    Look into the messages.db of a data path, if there is one. `by_class`: the topics with messages whose
    priorities are looked at. BackendError when that cannot be done.
    """
    check = MessagesCheck(os.path.join(directory, FILE))
    path = check.place
    if not os.path.exists(path):
        path += FRESH  # setting aside was interrupted, and the next start goes on with it
    if not os.path.exists(path):
        return check
    with _read_only(path) as connection:
        try:
            version = version_of(connection)
            if not version:
                return check
            if version == HEADERS_VERSION:
                check.newer.append(f"{check.place} has version {HEADERS_VERSION}, which has {NEWER_CONTENT}")
            problems = _problems(connection)
            _check_rows(check, salvage(connection), by_class)
        except BackendError as refusal:
            check.is_unreadable = True
            check.findings.append(Finding("newer format", check.place, f"{refusal}: a start fails"))
            return check
        except sqlite3.DatabaseError as error:
            check.is_unreadable = True
            costs = f"{error}; a start fails, and all messages in it are lost"
            check.findings.append(Finding("unreadable messages", check.place, costs, "sets it aside"))
            return check
    if problems:
        costs = f"{'; '.join(problems)}; what of it costs messages is named here too"
        check.findings.insert(0, Finding("damaged database", check.place, costs, _ANEW))
    return check


def _check_rows(check: MessagesCheck, content: Salvage, by_class: Container[str]) -> None:
    for topic_id, why in content.invalid_topics:
        name = content.topics.get(topic_id, (None, 0))[0]
        costs = f"topic {topic_id}: {why}"
        costs += "; all its messages" if name is None else "; nothing"
        check.findings.append(Finding("damaged topic", check.place, costs, _ANEW, name))
    for topic_id in sorted(content.nameless):
        costs = f"nothing: topic {topic_id} was being deleted; the next start goes on with it"
        check.findings.append(Finding("leftover", check.place, costs))
    for name, end in content.topics.values():
        classes = ClassSequences() if name in by_class else None
        check.topics[name] = StoredTopic(name, check.place, end=end, classes=classes)
    for row in content.rows():
        _take(check, content, row)


def _take(check: MessagesCheck, content: Salvage, row: SalvagedRow) -> None:
    name = content.topics[row.topic_id][0] if row.topic_id is not None else None
    segment = row.segment
    if segment is not None and name is not None:
        check.topics[name].add(segment)
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
        check.findings.append(Finding("damaged record", check.place, costs, remedy, name, only, messages=messages))


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
