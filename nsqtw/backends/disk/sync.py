"""
Writes that are not on stable storage yet: files, and directories with new names in them.

A file whose fsync fails is sealed. The system may have dropped what it could not write, and would say that all
is well when asked again: so a second fsync proves nothing, and the file is never written again, nor synced. One that
was sealed because a failed write could not be undone is synced all the same: what was stored before is in it.

Where many files are to be synced, their file system is synced instead, if it can be (`filesystem`).
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Collection
from threading import Lock

from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import LogFile
from nsqtw.backends.files import Files
from nsqtw.backends.filesystem import Filesystem


class DirtyFiles:
    """Marks may be made by one thread while another one syncs."""

    def __init__(self, files: Files, filesystem: Filesystem) -> None:
        self._files = files
        self._filesystem = filesystem
        self._lock = Lock()
        self._log_files: dict[LogFile, Log] = {}
        self._directories: set[tuple[str, Log]] = set()

    def add(self, file: LogFile, log: Log) -> None:
        """The file was written to."""
        # Who takes it out meanwhile syncs it after it was written to.
        if file not in self._log_files:
            with self._lock:
                self._log_files[file] = log

    def add_directory(self, path: str, log: Log) -> None:
        """The log has got a new name in this directory."""
        with self._lock:
            self._directories.add((path, log))

    def forget(self, file: LogFile) -> None:
        """The file is not needed any more."""
        with self._lock:
            self._log_files.pop(file, None)

    def sync(self, logs: Collection[Log] | None = None) -> dict[Log, OSError]:
        """
        Bring what belongs to `logs`, or everything, to stable storage, files before the directories that name them.
        Which logs failed, and why.
        """
        with self._lock:
            log_files = {file: log for file, log in self._log_files.items() if logs is None or log in logs}
            names = [(path, log) for path, log in self._directories if logs is None or log in logs]
            for file in log_files:
                del self._log_files[file]
            self._directories.difference_update(names)
        failed: dict[Log, OSError] = {}
        filesystem = self._filesystem
        if filesystem.sync(len(log_files)):
            log_files = {file: log for file, log in log_files.items() if not filesystem.has(log.directory)}
            names = [(path, log) for path, log in names if not filesystem.has(path)]
        for file, log in log_files.items():
            try:
                self._sync_file(file, log)
            except OSError as error:
                file.sealed = True
                failed[log] = error
        for path in {path for path, _ in names}:
            try:
                self._files.sync_directory(path)
            except FileNotFoundError:
                continue  # the topic was deleted
            except OSError as error:
                for log in {log for named, log in names if named == path}:
                    self.add_directory(path, log)
                    failed[log] = error
        return failed

    def _sync_file(self, file: LogFile, log: Log) -> None:
        descriptor = log.descriptor(file)
        if descriptor is not None:
            descriptor.sync()
