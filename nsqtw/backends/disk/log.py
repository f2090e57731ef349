"""
The files of one topic's log, as the writer, the reader and trim share them.

The list of files is never changed in place: a reader takes a `snapshot` and works on that. `lock` is held briefly: to
publish a commit, to take a snapshot, and while a file is replaced, so that the new file is never opened for the old
one.

A file that is followed by another one never changes again, for a backup may have linked it (`nsqtw backup --link`):
it does not grow when it becomes the last file, and as a spare file it is not written again.
"""

# mypyc: compiled

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from nsqtw.backends.disk.format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    HEADERS_VERSION,
    VERSION,
    Entry,
    decode_entries,
    decode_header,
    encode_entries,
    index_name,
    log_name,
)
from nsqtw.backends.disk.open_files import Descriptor, LogFile, OpenFiles
from nsqtw.backends.files import Files
from nsqtw.backends.quarantine import Quarantine
from nsqtw.core.damage import DamageLedger
from nsqtw.interfaces import Report

TEMPORARY = ".tmp"
"""Ends the names of files that do not count; opening a log removes them."""

_SPARE_NAME = "spare" + TEMPORARY


class Snapshot(NamedTuple):
    """A consistent view of the log. `size` is that of the last file, `end` one past the highest sequence."""

    log_files: list[LogFile]
    size: int
    end: int

    def size_of(self, number: int) -> int:
        """Return how many bytes of a file are to be looked at."""
        return self.size if number == len(self.log_files) - 1 else self.log_files[number].size

    def below(self, number: int) -> int:
        """One past the highest sequence that a file may have."""
        return self.end if number == len(self.log_files) - 1 else self.log_files[number + 1].first

    def number_of(self, sequence: int) -> int:
        """The file in which a sequence is, if it is kept."""
        return max(0, bisect_right(self.log_files, sequence, key=_first) - 1)


class Log:
    """The log of one topic: `log_files` ascending, of which only the last one grows."""

    def __init__(
        self,
        topic: str,
        directory: str,
        files: Files,
        open_files: OpenFiles,
        report: Report,
        ledger: DamageLedger,
        quarantine: Quarantine,
    ) -> None:
        self.ledger = ledger
        self.quarantine = quarantine
        self.needs_repair = False
        """A file of it is."""
        self.is_damaged = False
        """Damage was found when it was opened."""
        self.topic = topic
        self.directory = directory
        self.files = files
        self.open_files = open_files
        self.report = report
        self.lock = Lock()
        self.log_files: list[LogFile] = []
        self.end = 0
        self.put_total = 0
        self.has_spare = False
        self.is_writing = False
        """A commit has chosen the last file and has not shown yet what it wrote."""

    def path(self, first: int) -> str:
        return os.path.join(self.directory, log_name(first))

    @property
    def _spare_path(self) -> str:
        return os.path.join(self.directory, _SPARE_NAME)

    def snapshot(self) -> Snapshot:
        with self.lock:
            return Snapshot(self.log_files, self.log_files[-1].size if self.log_files else 0, self.end)

    def descriptor(self, file: LogFile) -> Descriptor | None:
        """The file, open; None when it is no longer part of the log. OSError when it cannot be opened."""
        descriptor = self.open_files.find(file)
        if descriptor is None:
            with self.lock:
                if file.is_removed:
                    return None
                descriptor = self.open_files.open(file)
        return descriptor

    def replace(self, old: LogFile, new: LogFile, temporary: str) -> None:
        """Let the rewritten file at the path `temporary` take the place and name of `old`. OSError if it cannot."""
        with self.lock:
            self.files.rename(temporary, old.path)
            old.is_removed = True
            self.log_files = [new if file is old else file for file in self.log_files]
        self.open_files.forget(old)

    def last_to_write(self) -> LogFile | None:
        """Begin a commit: the file it appends to, None for a new one. `is_writing` until it is shown or undone."""
        with self.lock:
            self.is_writing = True
            last = self.log_files[-1] if self.log_files else None
            return None if last is None or last.sealed or last.closed else last

    def version(self) -> int:
        """The format version of the newest file, which a new one must not fall below. OSError."""
        last = self.log_files[-1] if self.log_files else None
        return VERSION if last is None else self.version_of(last)

    def version_of(self, file: LogFile) -> int:
        """The format version of a file. OSError."""
        if not file.version:
            descriptor = self.descriptor(file)
            header = decode_header(descriptor.read(HEADER_BYTES, 0)) if descriptor is not None else None
            file.version = HEADERS_VERSION if header is None else header.version
        return file.version

    def close_last(self) -> LogFile | None:
        """Let the next commit open a new file. The last file, when nothing is appended to it any more."""
        with self.lock:
            if self.is_writing or not self.log_files:
                return None
            self.log_files[-1].closed = True
            return self.log_files[-1]

    def drop(self, dropped: Collection[LogFile]) -> None:
        """Let files be no part of the log any more; what they have on disk is the caller's."""
        with self.lock:
            last = self.log_files[-1] if self.log_files else None
            for file in dropped:
                file.is_removed = True
            self.log_files = [file for file in self.log_files if not file.is_removed]
            if self.log_files and self.log_files[-1] is not last:
                self.log_files[-1].closed = True
        for file in dropped:
            self.open_files.forget(file)

    def give_spare(self, path: str) -> None:
        """Put a finished file aside to be written again. OSError if that cannot be."""
        with self.lock:
            self.files.rename(path, self._spare_path)
            self.has_spare = True

    def take_spare(self, file: LogFile) -> bool:
        """Make the spare file the file of a new one; False when there is none, or it is also in a backup. OSError."""
        with self.lock:
            if not self.has_spare:
                return False
            self.has_spare = False
            try:
                if self.files.links(self._spare_path) > 1:
                    self.files.unlink(self._spare_path)
                    return False
                self.files.rename(self._spare_path, file.path)
            except FileNotFoundError:
                return False
            file.recycled = True
            return True

    def remove_spare(self) -> None:
        """Give its space back."""
        with self.lock:
            had_spare, self.has_spare = self.has_spare, False
        if had_spare:
            with suppress(OSError):
                self.files.unlink(self._spare_path)

    def load_index(self, file: LogFile) -> None:
        """Look for the index of a file that was written by an earlier process."""
        if file.index is None:
            data = b""
            with suppress(OSError):
                path = self._index_path(file)
                data = self._read_whole(path)
            file.index = [entry for entry in decode_entries(data) if entry.position < file.size]
            file.saved = len(file.index)

    def save_index(self, file: LogFile) -> None:
        """Write what the index file of a file has not yet. It is a cache: when that fails, a later start reads more."""
        entries: list[Entry] = file.index or []
        if file.saved == len(entries):
            return
        with suppress(OSError):
            descriptor = self._open_or_create(self._index_path(file))
            descriptor.write([encode_entries(entries[file.saved :])], file.saved * ENTRY_BYTES)
            descriptor.truncate(len(entries) * ENTRY_BYTES)
            file.saved = len(entries)

    def remove_index(self, file: LogFile) -> None:
        with suppress(FileNotFoundError):
            self.files.unlink(self._index_path(file))

    def _index_path(self, file: LogFile) -> str:
        return os.path.join(self.directory, index_name(file.first))

    def _read_whole(self, path: str) -> bytes:
        descriptor = Descriptor(self.files, self.files.open(path))
        return descriptor.read(self.files.size(path), 0)

    def _open_or_create(self, path: str) -> Descriptor:
        try:
            return Descriptor(self.files, self.files.open(path))
        except FileNotFoundError:
            return Descriptor(self.files, self.files.open(path, create=True))


def _first(file: LogFile) -> int:
    return file.first
