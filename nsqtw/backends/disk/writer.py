"""
Appending to a log, in two steps: `stage` writes behind the part that readers see, `commit` makes it visible, `rollback`
removes it. Between them the backend may sync.

The data of one file is one gathered write. After a failed write the file is truncated to its last good end, which works
on a full disk too; when even that fails, or after a failed fsync, the file is sealed: it keeps what readers saw of it,
and the next commit opens a new one. A sealed file is truncated as well, but nothing depends on that: a restart may find
the refused messages in it.

A file that grows large gets space ahead, an eighth of its size: a write that has to allocate each of its pages takes 26
us for 100 KB, one with allocated space 19. The end of the file stays where it is, so readers see no difference. The
rest is given back when the file is full, and when the log is closed or opened.

Performance: called once per turn and topic.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from nsqtw.backends.disk.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    HEADERS_VERSION,
    MAGIC,
    RECORD_BYTES,
    VERSION,
    Entry,
    encode_batch_head,
    encode_head,
    encode_header,
    encode_record,
)
from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import AHEAD_FROM, INDEX_BYTES, Descriptor, LogFile
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError

_UNSAVED_ENTRIES: Final = 16
"""The index file is written when it lacks so many entries: once for 4 MB."""
_AHEAD_SHARE: Final = 8
_MAX_AHEAD: Final = 4 * 1024 * 1024


class FileAppend:
    """The part of a commit for one file."""

    __slots__ = ("buffers", "entries", "file", "is_new", "last_entry", "put_total", "size")

    def __init__(self, file: LogFile, put_total: int, *, is_new: bool) -> None:
        self.file = file
        self.is_new = is_new
        self.put_total = put_total
        self.size = HEADER_BYTES if is_new else file.size
        self.buffers = [encode_header(file.first, put_total, file.version)] if is_new else []
        self.entries: list[Entry] = []
        self.last_entry = file.index[-1].position if file.index else 0

    def take(self, segment: Segment, limit: int) -> bool:
        """
        Add a segment. False when the file has no room for it: one beyond the limit is the first and only one; or when
        it has headers, and the file is of a version without.
        """
        if segment.headers is not None or segment.channel:
            return self._take_with_headers(segment, limit)
        frames = segment.frames
        position = self.size
        size = position + RECORD_BYTES + len(frames)
        if size > limit and position > HEADER_BYTES:
            return False
        if position - self.last_entry >= INDEX_BYTES:
            self._add_entry(segment)
        if segment.count > 1 and len(frames) > BLOCK_BYTES:
            head = encode_batch_head(MAGIC, segment, frames, position)
            size += len(head) - RECORD_BYTES
        else:
            head = encode_head(segment)
        self.buffers += (head, frames)
        self.size = size
        self.put_total += segment.count
        return True

    def _take_with_headers(self, segment: Segment, limit: int) -> bool:
        if self.file.version < HEADERS_VERSION:
            if not self.is_new or self.size > HEADER_BYTES:
                return False
            self.file.version = HEADERS_VERSION
            self.buffers = [encode_header(self.file.first, self.put_total, HEADERS_VERSION)]
        head, payload = encode_record(segment, self.size)
        size = self.size + len(head) + len(payload)
        if size > limit and self.size > HEADER_BYTES:
            return False
        if self.size - self.last_entry >= INDEX_BYTES:
            self._add_entry(segment)
        self.buffers += (head, payload)
        self.size = size
        self.put_total += segment.count
        return True

    def _add_entry(self, segment: Segment) -> None:
        self.entries.append(Entry(segment.first, self.size, self.put_total))
        self.last_entry = self.size


class Rollback(NamedTuple):
    """What a power loss may restore until it is synced: names of removed files, and the ends of others."""

    has_removed: bool
    truncated: list[LogFile]


class LogWriter:
    """Appends to one log; one call at a time. Files are rolled at `limit` bytes."""

    def __init__(self, log: Log, limit: int) -> None:
        self._log = log
        self._limit = limit
        self._appends: list[FileAppend] = []
        self._end = 0

    def stage(self, segments: Sequence[Segment]) -> tuple[FileAppend, ...]:
        """Write segments behind what readers look at. OSError when that fails: then `rollback` must follow."""
        log, appends, limit = self._log, self._appends, self._limit
        end = log.end
        file_append: FileAppend | None = None
        last = log.last_to_write()
        if last is not None:
            file_append = FileAppend(last, log.put_total, is_new=False)
            appends.append(file_append)
        for segment in segments:
            if segment.first < end:
                raise BackendError(f"sequence {segment.first} is not above the end of the log, {end}")
            if file_append is None or not file_append.take(segment, limit):
                if file_append is not None:
                    self._write(file_append)
                    self._finish(file_append)
                file_append = self._new_append(segment.first)
                appends.append(file_append)
                file_append.take(segment, limit)
            end = segment.first + segment.count
        self._end = end
        if file_append is not None:
            self._write(file_append)
        return tuple(appends)

    def commit(self) -> None:
        """Let readers see what was staged."""
        log, appends = self._log, self._appends
        if not appends:
            log.is_writing = False
            return
        last = appends[-1]
        with log.lock:
            for file_append in appends:
                file = file_append.file
                file.size = file_append.size
                if file_append.entries:
                    file.index = [*(file.index or ()), *file_append.entries]
                if file_append.is_new:
                    log.log_files = [*log.log_files, file]
            log.put_total = last.put_total
            log.end = self._end
            log.is_writing = False
        if last.is_new:
            # The one that was the last, and those that are full already.
            new_count = sum([file_append.is_new for file_append in appends])
            for file in log.log_files[-1 - new_count : -1]:
                log.save_index(file)
        if last.entries and self._unsaved(last.file) >= _UNSAVED_ENTRIES:
            log.save_index(last.file)
        appends.clear()

    def rollback(self) -> Rollback:
        """Take back what was staged, as far as the disk lets us; no reader will see the rest."""
        removed = False
        truncated: list[LogFile] = []
        last = self._log.log_files[-1] if self._log.log_files else None
        for file_append in self._appends:
            try:
                if file_append.is_new:
                    removed = True
                    self._remove(file_append.file)
                else:
                    if not file_append.file.sealed:
                        truncated.append(file_append.file)
                    self._truncate(file_append.file, file_append.file.size)
            except OSError:
                # What comes next must stand behind what is left here.
                if last is not None:
                    last.sealed = True
        self._appends.clear()
        self._log.is_writing = False
        return Rollback(removed, truncated)

    def close(self) -> None:
        """Cut off what the last file has beyond its end, and save its index."""
        for file in self._log.log_files[-1:]:
            if file.is_longer and not file.sealed:
                with suppress(OSError):
                    self._truncate(file, file.size)
            self._log.save_index(file)

    def _finish(self, file_append: FileAppend) -> None:
        """
        Truncate a full file to its end before there is a next one: older content behind it would look like damage.
        Space that was allocated ahead is harmless, and no publish is refused for it.
        """
        if file_append.file.recycled:
            self._truncate(file_append.file, file_append.size)
        elif file_append.file.is_longer:
            with suppress(OSError):
                self._truncate(file_append.file, file_append.size)

    def _new_append(self, first: int) -> FileAppend:
        before = self._appends[-1] if self._appends else None
        put_total = before.put_total if before is not None else self._log.put_total
        file = LogFile(self._log.path(first), first, 0, put_total)
        file.version = max(VERSION, before.file.version if before is not None else self._log.version())
        file.index = []
        return FileAppend(file, put_total, is_new=True)

    def _write(self, file_append: FileAppend) -> None:
        if not file_append.buffers:  # it was full
            return
        file = file_append.file
        descriptor = self._open_new(file) if file_append.is_new else self._log.descriptor(file)
        assert descriptor is not None, "the last file of a log is never replaced"
        if file_append.size > file.ahead_to:
            self._keep_space(descriptor, file_append)
        descriptor.write(file_append.buffers, file.size)

    def _keep_space(self, descriptor: Descriptor, file_append: FileAppend) -> None:
        """Allocate space for this write, and for some of the next ones; a reused file has it."""
        file = file_append.file
        ahead = min(file_append.size // _AHEAD_SHARE, _MAX_AHEAD, max(0, self._limit - file_append.size))
        file.ahead_to = file_append.size + ahead
        if not file.recycled:
            with suppress(OSError):  # if there is none, the write tells
                descriptor.allocate(file.size, file.ahead_to - file.size)

    def _open_new(self, file: LogFile) -> Descriptor:
        """A finished file that waits for reuse, else a new one."""
        log = self._log
        if log.take_spare(file):
            return log.open_files.open(file)
        try:
            return log.open_files.open(file, create=True)
        except FileExistsError:
            # Left by a commit that failed and could not be undone: nothing in it counts.
            log.files.unlink(file.path)
        except FileNotFoundError:
            log.files.make_directory(log.directory)
        return log.open_files.open(file, create=True)

    def _truncate(self, file: LogFile, size: int) -> None:
        descriptor = self._log.descriptor(file)
        if descriptor is not None:
            descriptor.truncate(size)
        file.recycled = False
        file.ahead_to = max(size, AHEAD_FROM)

    def _remove(self, file: LogFile) -> None:
        file.is_removed = True
        self._log.open_files.forget(file)
        with suppress(FileNotFoundError):
            self._log.files.unlink(file.path)

    def _unsaved(self, file: LogFile) -> int:
        return len(file.index or ()) - file.saved
