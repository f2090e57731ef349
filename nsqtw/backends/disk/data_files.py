"""
The files of the backend `disk` in a data path, for `nsqtw fsck` and `nsqtw backup`: which they are, and the repair of
logs.

    torn tail             copied, then truncated
    damaged records       the good ones are copied into another file, byte by byte, and what can be kept of the others
                          (`disk.repair`); synced; the old file gets a second name under damaged.d; the new one gets its
                          name
    files without record  moved to damaged.d, the very last first, as a start deletes them
    strays                removed

A topic with an unreadable file, or one of a newer format, is left as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial

from attrs import define, field
from zope.interface import implementer

from nsqtw.backends.check import NEWER_CONTENT, BackendCheck
from nsqtw.backends.disk.backend import PROBE_FILE
from nsqtw.backends.disk.file_check import LogFileCheck, ReadOnly
from nsqtw.backends.disk.format import HEADERS_VERSION, first_of_index, first_of_log, index_name
from nsqtw.backends.disk.log import TEMPORARY
from nsqtw.backends.disk.open_files import Descriptor, LogFile
from nsqtw.backends.disk.repair import write_repaired
from nsqtw.backends.disk.topic_check import LogCheck, check_topic
from nsqtw.backends.files import Files
from nsqtw.backends.quarantine import Quarantine
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import CopiedFile, IBackendFiles
from nsqtw.names import directory_name, is_ephemeral, name_of_directory

_DELETED = re.compile(r"(.+)\.deleted\.[0-9]+")


@implementer(IBackendFiles)
class DiskFiles:
    """The log files of all topics."""

    def __init__(self, argument: str) -> None:
        if argument:
            raise OptionError(f"the backend 'disk' takes no argument, not {argument!r}")

    def check(self, directory: str, ends: Mapping[str, int], by_class: Container[str]) -> LogsCheck:
        """IBackendFiles API"""
        check, files = LogsCheck(directory), ReadOnly()
        for entry in sorted(os.listdir(directory)):
            topic, path = name_of_directory(entry), os.path.join(directory, entry)
            if topic is None:
                check.leftovers += _leftover(entry, path)
            elif topic not in ends and all(first_of_log(name) is None for name in files.names(path)):
                continue
            elif is_ephemeral(topic):
                why = "nothing: an ephemeral topic ends with its broker; the next start deletes it"
                check.leftovers.append((path, why))
            else:
                check.add(check_topic(files, topic, path, ends.get(topic, 0), by_class=topic in by_class))
        content = f"format version {HEADERS_VERSION}, which has {NEWER_CONTENT}"
        if topics := [log.topic for log in check.topics.values() if log.has_headers]:
            check.newer.append(f"log files of {content}: {', '.join(topics)}")
        return check

    def copied_files(self, directory: str) -> Iterator[CopiedFile]:
        """IBackendFiles API. The newest two log files of a topic may still change."""
        for entry in sorted(os.listdir(directory)):
            topic, path = name_of_directory(entry), os.path.join(directory, entry)
            if topic is None or is_ephemeral(topic) or not os.path.isdir(path):
                continue
            if os.path.islink(path):
                raise BackendError(f"{path} is a symlink, and a backup has files only")
            names = [name for name in sorted(ReadOnly().names(path)) if self.owns(f"{entry}/{name}")]
            finished = set([name for name in names if first_of_log(name) is not None][:-2])
            for name in names:
                yield CopiedFile(f"{entry}/{name}", "finished" if name in finished else "changing")

    def owns(self, name: str) -> bool:
        """IBackendFiles API"""
        directory, _, file = name.rpartition("/")
        is_log = first_of_log(file) is not None or first_of_index(file) is not None
        return is_log and name_of_directory(directory) is not None


@define
class LogsCheck(BackendCheck):
    """The state of all logs."""

    topics: dict[str, LogCheck] = field(factory=dict)

    def add(self, log: LogCheck) -> None:
        """Add the log of another topic."""
        self.topics[log.topic] = log
        self.findings += log.findings()
        self.file_count += len(log.every_file)
        self.size += sum(file.size for file in log.every_file)
        self.records += sum(file.records for file in log.every_file)

    def repairs(self, files: Files, quarantine: Quarantine) -> Iterator[tuple[str, Callable[[], object]]]:
        """BackendCheck API"""
        for log in self.topics.values():
            if log.is_known:
                yield f"repair of topic {log.topic}", partial(_repair_log, files, quarantine, log)

    def cut_torn_ends(self) -> None:
        """BackendCheck API"""
        files = Files()
        for log in self.topics.values():
            for file in log.without_records:
                files.unlink(file.path)
                _remove_index(files, file)
            for file in log.log_files[-1:]:
                if file.tail is not None:
                    _cut(files, file)

    def set_aside(self, files: Files, quarantine: Quarantine) -> None:
        """BackendCheck API"""
        for topic in self.with_messages:
            directory = os.path.join(self.place, directory_name(topic))
            for name in files.names(directory):
                quarantine.move(os.path.join(directory, name))
            files.remove_directory(directory)


def _leftover(name: str, path: str) -> Iterator[tuple[str, str]]:
    deleted = _DELETED.fullmatch(name)
    if deleted is not None and name_of_directory(deleted[1]) is not None:
        yield path, "nothing: a deletion of a topic that was interrupted; the next start goes on with it"
    elif name == PROBE_FILE:
        yield path, "nothing: a full disk was being tried"


def _repair_log(files: Files, quarantine: Quarantine, log: LogCheck) -> None:
    for path in log.strays:
        files.unlink(path)
    for file in log.without_records:
        _remove_index(files, file)
        quarantine.move(file.path)
    put_total = version = 0
    for file in log.log_files:
        put_total = max(put_total, file.header.put_total if file.header is not None else 0)
        version = max(version, file.header.version if file.header is not None else 0)
        if file.wrong_index:
            _remove_index(files, file)
        if not file.is_whole:
            version = _rewrite(files, quarantine, file, put_total, version)
        elif file.tail is not None:
            _truncate(files, quarantine, file)
        put_total += file.put_count


def _truncate(files: Files, quarantine: Quarantine, file: LogFileCheck) -> None:
    """Cut off what is behind the last good record."""
    quarantine.keep_part(file.path, file.good_end, file.size)
    _cut(files, file)


def _cut(files: Files, file: LogFileCheck) -> None:
    descriptor = Descriptor(files, files.open(file.path))
    descriptor.truncate(file.good_end)
    descriptor.sync()


def _rewrite(files: Files, quarantine: Quarantine, file: LogFileCheck, put_total: int, version: int) -> int:
    """
    Let a header, the good records and what can be kept of others be all there is in a file, of at least the format
    `version`. Returns the version it has.
    """
    temporary = file.path + TEMPORARY
    old = Descriptor(files, files.open(file.path))
    source = LogFile(file.path, file.first, file.good_end, put_total)
    source.index, source.version = file.index, version
    repaired = write_repaired(files, old, source, file.good_end, file.below, temporary)
    try:
        quarantine.keep(file.path)
        # Its places mean other bytes in the new file.
        _remove_index(files, file)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.rename(temporary, file.path)
    files.sync_directory(os.path.dirname(file.path))
    return repaired.version


def _remove_index(files: Files, file: LogFileCheck) -> None:
    with suppress(FileNotFoundError):
        files.unlink(os.path.join(os.path.dirname(file.path), index_name(file.first)))
