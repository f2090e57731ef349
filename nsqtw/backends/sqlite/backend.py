"""
The backend `sqlite`: all topics in one database, `<data path>/messages.db`, a segment a row.

Theory of operation. A commit is one transaction in WAL mode, so all its topics are stored or none is. It does not wait
for the medium (synchronous NORMAL) unless it has to be durable (FULL). All writes run in the storage thread on one
connection; reads have another one, which sees what is committed and never waits. A commit never checkpoints the WAL
(wal_autocheckpoint 0): that takes milliseconds, and is done when trimming, or when the WAL is large.

A deleted topic first loses its name: the rest of an interrupted deletion is removed by the next open.

Space of finished messages returns to the file system by incremental vacuum: trim deletes rows, which leaves free pages,
and `tidy` removes free pages from the database, some with each trim. The broker calls trim until none are left
(`may_free_later`); then the WAL is truncated, too. All of this writes to the WAL first. On a full disk it is done in
small steps, with the space that is reserved for that (`spare_space`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from typing import Any, cast

from zope.interface import implementer

from nsqtw.backends.disk.free_space import Reserve
from nsqtw.backends.disk.salvage import WRONG_HEADERS
from nsqtw.backends.disk.trim import RecycledFiles
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.quarantine import kept_in
from nsqtw.backends.spare_space import SpareSpace
from nsqtw.backends.sqlite.rows import COLUMNS, LOWEST_DIRECTED_HEAD, UNKNOWN_CHANNEL, Row
from nsqtw.backends.sqlite.salvage import finish_quarantine, quarantine_file
from nsqtw.backends.sqlite.schema import (
    FILE,
    insert_segments,
    lower_version,
    migrate,
    open_database,
    sqlite_error,
    version_of,
)
from nsqtw.backends.sqlite.survey import SurveyedTopic, find_topic, first_of, is_corrupt, is_failed_sync, survey
from nsqtw.backends.sqlite.trim import ROWS_AT_ONCE, Trim
from nsqtw.core.damage import DamageLedger
from nsqtw.core.segment import Segment, only
from nsqtw.errors import BackendError, BackendFull, OptionError
from nsqtw.interfaces import (
    IBackend,
    IBackendQueue,
    IBackendQueueFactory,
    IDamagedBackend,
    IDirectedQueue,
    IFreeingQueue,
    IHeaderBackend,
    IRemovableBackend,
    Report,
)
from nsqtw.options.broker import Options

_PUT_TOPIC = """
INSERT INTO topic VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET end_sequence = excluded.end_sequence, bytes = bytes + excluded.bytes
"""
_SET_TOPIC = "UPDATE topic SET end_sequence = ?, bytes = ? WHERE id = ?"
_FOLLOWING = f"SELECT {COLUMNS} FROM segment WHERE topic = ? AND last >= ? AND last < ? ORDER BY last"
_DIRECTED = f"""
SELECT {COLUMNS} FROM segment INDEXED BY directed
    WHERE topic = ? AND last >= ? AND last < ? AND head >= {LOWEST_DIRECTED_HEAD} ORDER BY last
"""
_NEXT_PLACE = "SELECT id, last FROM segment WHERE topic = ? AND last >= ? AND last < ? ORDER BY last LIMIT 1"

_LARGE_WAL = 64 * 1024 * 1024
_WAL_SHARE = 4
"""The WAL is copied back when it has this part of the space that is free."""
_SMALL_WAL = 256 * 1024
_VACUUMED_PAGES = 1024
"""Cut off with one trim: 8 MB."""
_VACUUMED_PAGES_WHEN_FULL = 16
_ROWS_WHEN_FULL = 20
_STEPS_WHEN_FULL = 200
_DELETED_AT_ONCE = 1000
_LOOKED_AT_BYTES = 1024 * 1024
"""Read by one `directed`."""
_ROW_COST = 4096
"""Bytes that are read in the time that a row takes besides."""
_MOST_FAULTS = 100
"""Damaged rows after which a read returns what it has found: it takes part of a turn of the reactor."""


@implementer(IBackendQueueFactory)
class SqliteFactory:
    """Opens `SqliteBackend`."""

    name = "sqlite"
    summary = "one SQLite database under the data path, a transaction a commit"
    argument_format = ""

    def open(self, argument: str, directory: str, options: Options, report: Report) -> IBackend:
        """IBackendQueueFactory API. BackendError when the database cannot be used."""
        if argument:
            raise OptionError(f"the backend 'sqlite' takes no argument, not {argument!r}")
        return SqliteBackend(directory, report)


@implementer(IBackend, IDamagedBackend, IHeaderBackend, IRemovableBackend)
class SqliteBackend:
    """The database under one data path."""

    in_thread = True

    def __init__(self, directory: str, report: Report, files: Files | None = None) -> None:
        self._report_damage = report
        self.damage = DamageLedger()
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._files = files or Files()
        self._reserve = Reserve(self._files, directory, RecycledFiles())
        self._spare = SpareSpace(self._files, self._path)
        self.free_pages = 0
        """The size of the database, when it was opened or at the last `tidy`."""
        self._queues: dict[str, SqliteQueue] = {}
        self._lock = Lock()
        self._read_lock = Lock()
        self._is_in_doubt = False
        """The WAL could not be synced: its contents may not be on the medium, whatever a later sync reports."""
        try:
            try:
                self._open_or_quarantine()
            except sqlite3.Error as error:
                # Opening writes as well: the file of its shared memory, at least.
                if not isinstance(sqlite_error(error), BackendFull) or not self._spare.give_back():
                    raise
                self._open_or_quarantine()
        except sqlite3.Error as error:
            raise sqlite_error(error) from error
        except OSError as error:
            raise backend_error(error, f"setting {FILE} aside") from error

    def expect(self, ends: dict[str, int]) -> None:
        """IDamagedBackend API. Rows that cannot be read stay where they are, so nothing has to be known of them."""
        self.damage.files = kept_in(self._directory, self._files)

    def report(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        """Report damage, and count the messages that it may have cost."""
        lost = last + 1 - first if topic and first <= last else 0
        if lost:
            self.damage.add(topic, lost=lost, damaged=lost)
        self._report_damage(topic, where, first, last, why)

    def _report_quarantine(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        """The same for the contents of a quarantined database."""
        self.report(topic, where, first, last, why)
        if topic and first <= last:
            self.damage.add(topic, set_aside=last + 1 - first)

    def topics(self) -> list[str]:
        """IBackend API"""
        return sorted(topic.name for topic in self._surveyed.values() if topic.first < topic.end)

    def queue(self, topic: str) -> IBackendQueue:
        """IBackend API. A row is only made when something is committed."""
        queue = self._queues.get(topic)
        if queue is None:
            topic_row = self._find(topic)
            if topic_row is None:
                topic_row = SurveyedTopic(self._next_id, topic, 0, 0, 0)
                self._next_id += 1
            queue = self._queues[topic] = SqliteQueue(self, topic_row)
        return queue

    def commit(
        self, writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool
    ) -> dict[Any, BackendError]:
        """IBackend API. All of it fails together."""
        of_queues = cast(Sequence[tuple[SqliteQueue, Sequence[Segment]]], writes)
        try:
            size = sum([segment.size for _, segments in writes for segment in segments])
            full = self._reserve.refusal(size)
            if full is not None and writes:
                self._copy_back(_SMALL_WAL, how="TRUNCATE")  # while there is space for it
                raise backend_error(full, f"write to {FILE}")
            with self.transaction(durable=durable) as connection:
                for queue, segments in of_queues:
                    queue.put(connection, segments)
                if durable and not writes:
                    # Only a commit that changes something reaches the medium, and takes all before it along.
                    connection.execute(f"PRAGMA user_version = {version_of(connection)}")
        except BackendError as error:
            if not writes:
                raise
            return dict.fromkeys([queue for queue, _ in writes], error)
        if full is not None:  # what was stored is synced, and no more can be stored
            self._copy_back(0, how="TRUNCATE")  # while there is space for it
            raise backend_error(full, f"write to {FILE}")
        for queue, segments in of_queues:
            queue.stored(segments)
        # Copying it back takes as much space again.
        self._copy_back(min(_LARGE_WAL, self._reserve.free_bytes // _WAL_SHARE))
        self._spare.take()
        return {}

    def close(self) -> None:
        """IBackend API"""
        for queue in list(self._queues.values()):
            queue.close()
        self._reader.close()
        with suppress(sqlite3.Error, BackendError):  # the next start does it
            lower_version(self._writer)
        self._writer.close()

    def remove(self) -> None:
        """IRemovableBackend API"""
        self.close()
        self._spare.give_back()
        # A database without its log of changes has less in it, and one that is not there has no log of changes.
        for suffix in ("-wal", "-shm", ""):
            try:
                self._files.unlink(self._path + suffix)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise backend_error(error, f"removal of {FILE}{suffix}") from error

    def forget_queue(self, topic: str) -> None:
        """The queue of a topic is closed or deleted: the next one is another."""
        self._queues.pop(topic, None)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection that reads. BackendError."""
        with self._read_lock:
            try:
                yield self._reader
            except sqlite3.Error as error:
                raise sqlite_error(error) from error

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """
        Execute everything inside in one transaction. With `durable` it is on stable storage afterwards. BackendError.
        """
        with self._lock:
            connection = self._writer
            try:
                if self._is_in_doubt:
                    self._leave_log()
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    self._is_in_doubt = self._is_in_doubt or is_failed_sync(error)
                    raise sqlite_error(error) from error
                raise

    def _leave_log(self) -> None:
        """
        Checkpoint the WAL into the database, which is synced, and restart the WAL: after a failed sync a commit behind
        unsynced data could be lost with it. sqlite3.Error, BackendError.
        """
        self._writer.execute("PRAGMA synchronous = FULL")
        busy, *_ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise BackendError(f"{FILE}: its log of changes could not be synced, and is still being read")
        self._is_in_doubt = False

    def tidy(self, most_pages: int = _VACUUMED_PAGES) -> None:
        """
        Return free pages to the file system, and checkpoint the WAL: completely, with truncation, when no free pages
        are left. BackendError.
        """
        with self._lock:
            try:
                # A page a step, and only this method takes all the steps of a pragma without columns.
                self._writer.executescript(f"PRAGMA incremental_vacuum({most_pages})")
                self.free_pages = self._free_pages()
            except sqlite3.Error as error:
                raise sqlite_error(error) from error
        is_last = not self.free_pages or most_pages < _VACUUMED_PAGES
        self._copy_back(_SMALL_WAL, how="TRUNCATE" if is_last else "PASSIVE")

    def tidy_all(self) -> None:
        """Give all free pages back: after a deletion there may be no trim that would go on with it. BackendError."""
        self.tidy()
        before = self.free_pages + 1
        while 0 < self.free_pages < before:
            before = self.free_pages
            self.tidy()

    def make_room(self) -> bool:
        """The disk is full: free the reserved space. Returns whether there was some."""
        had_room = self._spare.give_back()
        self._copy_back(0, how="RESTART")
        return had_room

    @property
    def is_full(self) -> bool:
        """Whether publishing is refused for lack of space."""
        return self._reserve.is_short()

    def remove_segments(self, topic_id: int) -> None:
        """Remove everything of a topic that has no name any more, a part at a time. BackendError."""
        while True:
            with self.transaction() as connection:
                removed = connection.execute(
                    "DELETE FROM segment WHERE id IN (SELECT id FROM segment WHERE topic = ? LIMIT ?)",
                    (topic_id, _DELETED_AT_ONCE),
                ).rowcount
                if removed < _DELETED_AT_ONCE:
                    connection.execute("DELETE FROM topic WHERE id = ?", (topic_id,))
                    return

    def _copy_back(self, limit: int, how: str = "PASSIVE") -> None:
        """Copy the WAL into the database when it is larger than `limit` bytes. A failure is tried again later."""
        with suppress(OSError, sqlite3.Error):
            if self._files.size(f"{self._path}-wal") > limit:
                with self._lock:
                    self._writer.execute(f"PRAGMA wal_checkpoint({how})").fetchall()

    def _open_or_quarantine(self) -> None:
        """sqlite3.Error, BackendError, OSError."""
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            quarantine_file(self._path, self._report_quarantine)
            self._open()

    def _open(self) -> None:
        """sqlite3.Error, BackendError, OSError."""
        finish_quarantine(self._path)
        with ExitStack() as rollback:
            self._writer = open_database(self._path)
            rollback.callback(self._writer.close)
            migrate(self._writer)
            self._remove_nameless()
            self._surveyed = survey(self._writer, self._report_damage)
            for topic in self._surveyed.values():
                if topic.is_invalid:
                    self._writer.execute(_SET_TOPIC, (topic.end, topic.bytes, topic.topic_id))
            self.free_pages = self._free_pages()
            self._next_id: int = self._writer.execute("SELECT ifnull(max(id), 0) + 1 FROM topic").fetchone()[0]
            self._reader = open_database(self._path)
            rollback.pop_all()

    def _free_pages(self) -> int:
        return int(self._writer.execute("PRAGMA freelist_count").fetchone()[0])

    def _find(self, topic: str) -> SurveyedTopic | None:
        """The stored contents of a topic, as of the open, or now after it."""
        topic_row = self._surveyed.pop(topic, None)
        if topic_row is None:
            with self.reading() as connection:
                topic_row = find_topic(connection, topic)
        return topic_row

    def _remove_nameless(self) -> None:
        for (topic_id,) in self._writer.execute("SELECT id FROM topic WHERE name IS NULL").fetchall():
            self.remove_segments(topic_id)


@implementer(IBackendQueue, IDirectedQueue, IFreeingQueue)
class SqliteQueue:
    """The rows of one topic."""

    def __init__(self, backend: SqliteBackend, topic_row: SurveyedTopic) -> None:
        self._backend = backend
        self.topic = topic_row.name
        self.topic_id = topic_row.topic_id
        self.first, self.end = topic_row.first, topic_row.end
        self.size = topic_row.bytes
        self._trim = Trim(topic_row.topic_id)
        self._has_freed = False
        self._reported: set[int] = set()

    def put(self, connection: sqlite3.Connection, segments: Sequence[Segment]) -> None:
        """Write segments, in a transaction. BackendError when they do not ascend."""
        end = self.end
        for segment in segments:
            if segment.first < end:
                raise BackendError(f"sequence {segment.first} is not above the end of the log, {end}")
            end = segment.end
        insert_segments(connection, self.topic_id, segments)
        added = sum([len(segment.frames) for segment in segments])
        connection.execute(_PUT_TOPIC, (self.topic_id, self.topic, end, added))

    def stored(self, segments: Sequence[Segment]) -> None:
        """Count the segments of `put`, which are committed now."""
        if segments and self.first == self.end:
            self.first = segments[0].first
        self.size += sum([len(segment.frames) for segment in segments])
        self.end = segments[-1].end if segments else self.end

    def read(self, start: int, limit: int) -> list[Segment]:
        """IBackendQueue API"""
        segments: list[Segment] = []
        faults = 0
        with self._backend.reading() as connection:
            while True:
                try:
                    for row in map(Row._make, connection.execute(_FOLLOWING, (self.topic_id, start, self.end))):
                        why = row.fault()
                        faults += bool(why)
                        if why == WRONG_HEADERS:
                            repaired, why = row.without_damaged_headers(), UNKNOWN_CHANNEL
                            if repaired is not None:
                                self._report_headers(row)
                                row, why = repaired, ""
                        if why:
                            self._report(row.row_id, *row.bounds(start, self.end - 1), why)
                            continue
                        size = len(row.frames) + len(row.headers or b"")
                        if segments and size > limit:
                            return segments
                        segments += self._passed_on(row, segments[-1].end if segments else 0)
                        limit -= size
                        start = row.last + 1
                        if faults >= _MOST_FAULTS:
                            return segments
                    return segments
                except sqlite3.DatabaseError as error:
                    if not is_corrupt(error):
                        raise
                    start = self._pass_over(connection, start)

    def directed(self, start: int) -> tuple[list[tuple[int, int, str]], int]:
        """IDirectedQueue API. Reads the rows with a channel, by an index of their own, up to a damaged one."""
        runs: list[tuple[int, int, str]] = []
        room, end = _LOOKED_AT_BYTES, self.end  # the other thread may move it meanwhile
        with self._backend.reading() as connection:
            try:
                for row in map(Row._make, connection.execute(_DIRECTED, (self.topic_id, start, end))):
                    if row.fault() or room <= 0:
                        break
                    segment = row.segment()
                    runs.append((segment.first, segment.end, segment.channel))
                    room -= len(segment.frames) + _ROW_COST
                else:
                    return runs, max(start, end)
            except sqlite3.DatabaseError as error:
                if not is_corrupt(error):
                    raise
        return runs, runs[-1][1] if runs else start

    @property
    def may_free(self) -> bool:
        """IFreeingQueue API"""
        return self.size > 0 or self._backend.free_pages > 0

    @property
    def may_free_later(self) -> bool:
        """IFreeingQueue API"""
        return self._trim.is_partial or (self._has_freed and self._backend.free_pages > 0)

    def trim(self, below: int, keep: Iterable[int]) -> None:
        """IBackendQueue API"""
        if self._backend.is_full:
            self._trim_when_full(below, list(keep))
            return
        freed = self._trim_rows(below, keep, ROWS_AT_ONCE)
        before = self._backend.free_pages
        self._backend.tidy()
        self._has_freed = freed > 0 or self._backend.free_pages < before

    def _trim_when_full(self, below: int, keep: Sequence[int]) -> None:
        """Free space in small steps, until nothing more can be freed."""
        self._has_freed = False
        for _ in range(_STEPS_WHEN_FULL):
            try:
                freed = self._trim_rows(below, keep, _ROWS_WHEN_FULL)
                self._backend.tidy(_VACUUMED_PAGES_WHEN_FULL)
            except BackendFull:
                if not self._backend.make_room():
                    raise
                continue
            self._has_freed = self._has_freed or freed > 0
            if not freed and not self._backend.free_pages:
                break

    def _trim_rows(self, below: int, keep: Iterable[int], most_rows: int) -> int:
        """Returns how many bytes of frames were freed."""
        with self._backend.transaction() as connection:
            freed = self._trim.trim(connection, below, keep, most_rows)
            connection.execute("UPDATE topic SET bytes = bytes - ? WHERE id = ?", (freed, self.topic_id))
        if freed:
            self.size -= freed
            with self._backend.reading() as connection:
                self.first = first_of(connection, self.topic_id, self.end)
        return freed

    def delete(self) -> None:
        """IBackendQueue API"""
        self.close()
        with self._backend.transaction() as connection:
            connection.execute("UPDATE topic SET name = NULL WHERE id = ?", (self.topic_id,))
        self._backend.remove_segments(self.topic_id)
        self._backend.tidy_all()

    def close(self) -> None:
        """IBackendQueue API"""
        self._backend.forget_queue(self.topic)

    def _passed_on(self, row: Row, above: int) -> list[Segment]:
        """Return the bounds with one more good row, behind those that end at `above`."""
        segment = row.segment()
        if segment.first >= above:
            return [segment]
        self._report(row.row_id, row.first, above - 1, "another row has them too")
        return only(segment, range(above, segment.end))

    def _pass_over(self, connection: sqlite3.Connection, start: int) -> int:
        """The row that comes next cannot be read; the index still tells where it ends."""
        row = connection.execute(_NEXT_PLACE, (self.topic_id, start, self.end)).fetchone()
        if row is None:
            return self.end
        row_id, last = row
        self._report(row_id, start, last, "the database is damaged there")
        return int(last) + 1

    def _report_headers(self, row: Row) -> None:
        """Report damaged headers of a row, which cost no message."""
        if row.row_id not in self._reported:
            self._reported.add(row.row_id)
            self._backend.damage.add(self.topic, damaged=row.last + 1 - row.first)
            where = f"{FILE} segment {row.row_id}"
            self._backend.report(self.topic, where, row.first, row.first - 1, f"{WRONG_HEADERS}; no message is lost")

    def _report(self, row_id: int, first: int, last: int, why: str) -> None:
        if row_id not in self._reported:
            self._reported.add(row_id)
            self._backend.report(self.topic, f"{FILE} segment {row_id}", first, last, why)
