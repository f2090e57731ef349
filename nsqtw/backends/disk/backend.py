"""
The backend `disk`: one directory of log files for each topic, under the data path.

    <data path>/<percent-encoded topic>/<first sequence>.log     what is stored; see format
                                        <first sequence>.index   a cache
                                        *.tmp                    not yet, or no longer, part of the log
    <data path>/<percent-encoded topic>.deleted.<n>/             a deletion that was interrupted

Whatever else is in the data path is left alone. No topic's directory has a dot in its name: the topic
`a.deleted.1` has the directory `a%2Edeleted%2E1`.

The parts: `log` is what is shared; `recovery` opens it, `writer` appends, `reader` reads,
`trim` frees, `damage`, `salvage` and `repair` keep what can be kept of damaged files, `free_space`
keeps a reserve, `sync` remembers what is not on stable storage, `filesystem` is the file system below.
`data_files`, `topic_check` and `file_check` are for fsck and backup, which do not open the backend.
"""

# mypyc: compiled

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from zope.interface import classImplements, implementer

from nsqtw.backends.disk.format import first_of_log
from nsqtw.backends.disk.free_space import Reserve
from nsqtw.backends.disk.gaps import report_gaps
from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import Descriptor, OpenFiles
from nsqtw.backends.disk.reader import RecordReader
from nsqtw.backends.disk.recovery import open_log
from nsqtw.backends.disk.repair import repair_all, repair_closed
from nsqtw.backends.disk.sync import DirtyFiles
from nsqtw.backends.disk.trim import LogTrim, RecycledFiles
from nsqtw.backends.disk.writer import LogWriter
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.filesystem import Filesystem
from nsqtw.backends.quarantine import Quarantine, kept_in
from nsqtw.core.damage import DamageLedger
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import (
    IBackend,
    IBackendQueue,
    IBackendQueueFactory,
    ICountedQueue,
    IDamagedBackend,
    IDamagedQueue,
    IDirectedQueue,
    IFreeingQueue,
    IHeaderBackend,
    IReleasingBackend,
    IStoppingQueue,
    Report,
)
from nsqtw.names import directory_name, name_of_directory
from nsqtw.options.broker import Options

PROBE_FILE = "probe.tmp"
"""A temporary file in the data path: a write to it shows whether the disk has space again."""
_MAX_PROBED = 1 << 20

_DELETED = re.compile(r"(.+)\.deleted\.[0-9]+")


@implementer(IBackendQueueFactory)
class DiskFactory:
    """Opens `DiskBackend`."""

    name = "disk"
    summary = "rolling log files with checksums under the data path"
    argument_format = ""

    def open(self, argument: str, directory: str, options: Options, report: Report) -> IBackend:
        """IBackendQueueFactory API. Reads `options.max_bytes_per_file`. `report` may come from queue() and read()."""
        if argument:
            raise OptionError(f"the backend 'disk' takes no argument, not {argument!r}")
        return DiskBackend(directory, options.max_bytes_per_file, report)


class DiskBackend:
    """The logs under one data path, in files of about `max_bytes_per_file` bytes."""

    in_thread = False

    def __init__(self, directory: str, max_bytes_per_file: int, report: Report, files: Files | None = None) -> None:
        self.directory = directory
        self.max_bytes_per_file = max_bytes_per_file
        self.report = report
        self.files = files or Files()
        self.open_files = OpenFiles(self.files)
        self._filesystem = Filesystem(self.files, directory)
        self.dirty_files = DirtyFiles(self.files, self._filesystem)
        self.recycled = RecycledFiles()
        self.reserve = Reserve(self.files, directory, self.recycled)
        self._queues: dict[str, DiskQueue] = {}
        self._not_taken = 0
        self._known_ends: dict[str, int] = {}
        self.damage = DamageLedger()
        try:
            self._quarantine = Quarantine(directory, self.files)
            self.damage.files = kept_in(directory, self.files)
            self._finish_deletions()
            with suppress(OSError):  # a broker was killed while it probed a full disk
                self.files.unlink(os.path.join(directory, PROBE_FILE))
        except OSError as error:
            raise backend_error(error, "open of the data path") from error

    def expect(self, ends: dict[str, int]) -> None:
        """IDamagedBackend API. Files that were set aside are looked up again: positions.db may be since the open."""
        self._known_ends = ends
        self.damage.files = kept_in(self.directory, self.files)

    def topics(self) -> list[str]:
        """IBackend API"""
        topics = []
        for entry in self.files.names(self.directory):
            topic = name_of_directory(entry)
            if topic is not None and self._has_log(os.path.join(self.directory, entry)):
                topics.append(topic)
        return sorted(topics)

    def queue(self, topic: str) -> IBackendQueue:
        """IBackend API. A directory is only made when something is committed."""
        queue = self._queues.get(topic)
        if queue is None:
            try:
                directory = os.path.join(self.directory, directory_name(topic))
            except ValueError as error:
                raise BackendError(str(error)) from error
            log = Log(topic, directory, self.files, self.open_files, self.report, self.damage, self._quarantine)
            open_log(log, self._known_ends.get(topic, 0))
            queue = self._queues[topic] = DiskQueue(self, log)
        return queue

    def commit(  # noqa: C901  # a call is a cost of each turn
        self, writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool
    ) -> dict[Any, BackendError]:
        """
        IBackend API. Without `writes` the answer names queues of which something that was committed before could not
        be brought to stable storage.
        """
        size = 0
        for _, segments in writes:
            for segment in segments:
                size += len(segment.frames)
                if segment.headers is not None:
                    size += segment.header_bytes
        if writes:
            full = self.reserve.refusal(size)
            if full is not None:
                self._not_taken = size
                error = backend_error(full, "write to the data path")
                return dict.fromkeys([queue for queue, _ in writes], error)
        failed: dict[Any, BackendError] = {}
        staged: list[DiskQueue] = []
        for written, segments in writes:
            queue = cast(DiskQueue, written)
            try:
                queue.stage(segments)
                staged.append(queue)
            except OSError as error:
                queue.rollback()
                failed[queue] = backend_error(error, f"write of topic {queue.log.topic}")
            except BackendError as error:
                queue.rollback()
                failed[queue] = error
        if durable:
            self._sync({queue.log for queue in staged} if writes else None, failed)
        if not writes and self._not_taken:
            self._probe(self._not_taken)
        for queue in staged:
            if queue in failed:
                queue.rollback()
            else:
                queue.writer.commit()
        self._not_taken = size if failed else 0
        return failed

    def release_descriptors(self) -> bool:
        """IReleasingBackend API"""
        return self.open_files.release()

    def close(self) -> None:
        """IBackend API"""
        for queue in list(self._queues.values()):
            queue.close()
        self._filesystem.close()

    def forget_queue(self, topic: str) -> None:
        """The queue of a topic is closed or deleted: the next one is another."""
        self._queues.pop(topic, None)

    def remove_tree(self, directory: str) -> None:
        """Remove a directory of log files. OSError if that fails."""
        for name in self.files.names(directory):
            with suppress(FileNotFoundError):
                self.files.unlink(os.path.join(directory, name))
        with suppress(FileNotFoundError):
            self.files.remove_directory(directory)

    def _probe(self, size: int) -> None:
        """Find out whether what was not taken would be taken now. BackendError."""
        path = os.path.join(self.directory, PROBE_FILE)
        try:
            full = self.reserve.refusal(size)
            if full is not None:
                raise full
            with suppress(FileNotFoundError):
                self.files.unlink(path)
            try:
                descriptor = Descriptor(self.files, self.files.open(path, create=True))
                descriptor.write([bytes(min(size, _MAX_PROBED))], 0)
                descriptor.sync()
            finally:
                with suppress(FileNotFoundError):
                    self.files.unlink(path)
        except OSError as error:
            raise backend_error(error, "write to the data path") from error

    def _sync(self, logs: set[Log] | None, failed: dict[Any, BackendError]) -> None:
        for log, error in self.dirty_files.sync(logs).items():
            queue = self._queues.get(log.topic)
            if queue is not None:
                failed.setdefault(queue, backend_error(error, f"sync of topic {log.topic}"))

    def _has_log(self, directory: str) -> bool:
        return any(first_of_log(name) is not None for name in self.files.names(directory))

    def _finish_deletions(self) -> None:
        for name in self.files.names(self.directory):
            match = _DELETED.fullmatch(name)
            if match is not None and name_of_directory(match[1]) is not None:
                # What cannot be removed now is tried again at the next start: no reason not to start.
                with suppress(OSError):
                    self.remove_tree(os.path.join(self.directory, name))


class DiskQueue:
    """The log of one topic."""

    def __init__(self, backend: DiskBackend, log: Log) -> None:
        self._backend = backend
        self.log = log
        self.writer = LogWriter(log, backend.max_bytes_per_file)
        self._reader = RecordReader(log)
        self._trim = LogTrim(
            log, backend.max_bytes_per_file, backend.recycled, backend.dirty_files.forget, backend.reserve.is_short
        )

    @property
    def first(self) -> int:
        """IBackendQueue API"""
        log_files = self.log.log_files
        return log_files[0].first if log_files else self.log.end

    @property
    def end(self) -> int:
        """IBackendQueue API"""
        return self.log.end

    @property
    def size(self) -> int:
        """IBackendQueue API. Without index files and the spare file."""
        return sum([file.size for file in self.log.log_files])

    def stage(self, segments: Sequence[Segment]) -> None:
        """Write segments where no reader looks yet, and note what has to be synced. OSError, BackendError."""
        log = self.log
        dirty_files = self._backend.dirty_files
        for append in self.writer.stage(segments):
            dirty_files.add(append.file, log)
            if append.is_new:
                dirty_files.add_directory(log.directory, log)
                dirty_files.add_directory(self._backend.directory, log)

    def rollback(self) -> None:
        """Roll back the staged segments. The next sync removes their bytes from stable storage, too."""
        rolled_back = self.writer.rollback()
        for file in rolled_back.truncated:
            self._backend.dirty_files.add(file, self.log)
        if rolled_back.has_removed:
            self._backend.dirty_files.add_directory(self.log.directory, self.log)

    def read(self, start: int, limit: int) -> list[Segment]:
        """IBackendQueue API"""
        return self._reader.read(start, limit)

    def directed(self, start: int) -> tuple[list[tuple[int, int, str]], int]:
        """IDirectedQueue API"""
        return self._reader.directed(start)

    def check(self, start: int, expected: int) -> bool:
        """ICountedQueue API"""
        try:
            return report_gaps(self.log, start, expected)
        except OSError as error:
            raise backend_error(error, f"check of topic {self.log.topic}") from error

    @property
    def may_free(self) -> bool:
        """IFreeingQueue API"""
        return self._trim.may_free

    @property
    def may_free_later(self) -> bool:
        """IFreeingQueue API. The last file is closed when it has stopped growing."""
        return self._trim.last.needs_another_pass

    def begin_stop(self) -> bool:
        """IStoppingQueue API"""
        return self._trim.last.begin_stop()

    @property
    def is_damaged(self) -> bool:
        """IDamagedQueue API"""
        return self.log.is_damaged

    def trim(self, below: int, keep: Iterable[int]) -> None:
        """IBackendQueue API"""
        if self.log.needs_repair:
            repair_closed(self.log, self._backend.dirty_files.forget)
        self._trim.trim(below, keep)

    def delete(self) -> None:
        """IBackendQueue API"""
        backend, log = self._backend, self.log
        self._let_go()
        try:
            deleted = self._free_name()
            with suppress(FileNotFoundError):
                backend.files.rename(log.directory, deleted)
                backend.files.sync_directory(backend.directory)
                backend.remove_tree(deleted)
        except OSError as error:
            raise backend_error(error, f"deletion of topic {log.topic}") from error

    def close(self) -> None:
        """
        IBackendQueue API. After a clean stop all is on stable storage, as far as the disk lets it: what was
        committed as durable is there already, so a failure here breaks no promise.
        """
        self.writer.close()
        self._backend.dirty_files.sync()
        if self.log.needs_repair:
            repair_all(self.log)
        self.log.remove_spare()
        self._let_go()

    def _let_go(self) -> None:
        log_files = self.log.log_files
        self.log.drop(log_files)
        for file in log_files:
            self._backend.dirty_files.forget(file)
        self._backend.recycled.forget(self.log)
        self._backend.forget_queue(self.log.topic)

    def _free_name(self) -> str:
        taken = set(self._backend.files.names(self._backend.directory))
        name = directory_name(self.log.topic)
        number = 0
        while f"{name}.deleted.{number}" in taken:
            number += 1
        return os.path.join(self._backend.directory, f"{name}.deleted.{number}")


# Not by decorators: with one, mypyc does not make a native class.
classImplements(DiskBackend, IBackend, IDamagedBackend, IHeaderBackend, IReleasingBackend)
classImplements(DiskQueue, IBackendQueue, ICountedQueue, IDamagedQueue, IDirectedQueue, IFreeingQueue, IStoppingQueue)
