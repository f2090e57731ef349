"""
Appending to a log, in two steps: `stage` writes behind what readers look at, `publish` shows it, `undo` takes it
back. Between them the backend may sync.

What belongs to one file is one gathered write. After a failed write the file is cut back to its last good end,
which works on a full disk too; when even that fails, or after a failed fsync, the file is sealed: it keeps what
readers saw of it, and the next commit opens a new one. A sealed file is cut back as well, but nothing depends on that:
a restart may find the refused messages in it.

A file that grows large is given space ahead, an eighth of what it has: a write that has to find space for each of its
pages takes 26 us for 100 KB, one that has it takes 19. The end of the file stays where it is, so nobody sees that. What
is left over is given back when the file is full, and when the log is closed or opened.

This module is hot, once per turn and topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from nsqtw.backends.disk.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECORD_BYTES,
    Entry,
    encode_batch_head,
    encode_head,
    encode_header,
)
from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import AHEAD_FROM, INDEX_BYTES, Descriptor, LogFile
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError

_UNSAVED_ENTRIES: Final = 16
"""The index file is written when it lacks so many entries: once for 4 MB."""
_AHEAD_SHARE: Final = 8
_MOST_AHEAD: Final = 4 * 1024 * 1024


class FileAppend:
    """What a commit adds to one file."""

    __slots__ = ("buffers", "entries", "file", "is_new", "last_entry", "put_total", "size")

    def __init__(self, file: LogFile, put_total: int, *, is_new: bool) -> None:
        self.file = file
        self.is_new = is_new
        self.put_total = put_total
        self.size = HEADER_BYTES if is_new else file.size
        self.buffers = [encode_header(file.first, put_total)] if is_new else []
        self.entries: list[Entry] = []
        self.last_entry = file.index[-1].position if file.index else 0

    def take(self, segment: Segment, limit: int) -> bool:
        """Add a segment. False when the file has no room for it: one beyond the limit is the first and only one."""
        frames = segment.frames
        position = self.size
        size = position + RECORD_BYTES + len(frames)
        if size > limit and position > HEADER_BYTES:
            return False
        if position - self.last_entry >= INDEX_BYTES:
            self.entries.append(Entry(segment.first, position, self.put_total))
            self.last_entry = position
        if segment.count > 1 and len(frames) > BLOCK_BYTES:
            head = encode_batch_head(segment, position)
            size += len(head) - RECORD_BYTES
        else:
            head = encode_head(segment)
        self.buffers += (head, frames)
        self.size = size
        self.put_total += segment.count
        return True


class Rollback(NamedTuple):
    """What a power loss may bring back until it is synced: names of files that are gone, and the ends of others."""

    has_removed: bool
    cut: list[LogFile]


class LogWriter:
    """Appends to one log; one call at a time. Files are rolled at `limit` bytes."""

    def __init__(self, log: Log, limit: int) -> None:
        self._log = log
        self._limit = limit
        self._growths: list[FileAppend] = []
        self._end = 0

    def stage(self, segments: Sequence[Segment]) -> list[FileAppend]:
        """Write segments behind what readers look at. OSError when that fails: then `undo` must follow."""
        log, growths, limit = self._log, self._growths, self._limit
        end = log.end
        growth: FileAppend | None = None
        last = log.last_to_write()
        if last is not None:
            growth = FileAppend(last, log.put_total, is_new=False)
            growths.append(growth)
        for segment in segments:
            if segment.first < end:
                raise BackendError(f"sequence {segment.first} is not above the end of the log, {end}")
            if growth is None or not growth.take(segment, limit):
                if growth is not None:
                    self._write(growth)
                    self._finish(growth)
                growth = self._new_growth(segment.first)
                growths.append(growth)
                growth.take(segment, limit)
            end = segment.first + segment.count
        self._end = end
        if growth is not None:
            self._write(growth)
        return growths

    def publish(self) -> None:
        """Let readers see what was staged."""
        log, growths = self._log, self._growths
        if not growths:
            log.is_writing = False
            return
        last = growths[-1]
        with log.lock:
            for growth in growths:
                file = growth.file
                file.size = growth.size
                if growth.entries:
                    file.index = [*(file.index or ()), *growth.entries]
                if growth.is_new:
                    log.log_files = [*log.log_files, file]
            log.put_total = last.put_total
            log.end = self._end
            log.is_writing = False
        if last.is_new:
            # The one that was the last, and those that are full already.
            new_count = sum([growth.is_new for growth in growths])
            for file in log.log_files[-1 - new_count : -1]:
                log.save_index(file)
        if last.entries and self._unsaved(last.file) >= _UNSAVED_ENTRIES:
            log.save_index(last.file)
        growths.clear()

    def undo(self) -> Rollback:
        """Take back what was staged, as far as the disk lets us; no reader will see the rest."""
        removed = False
        cut: list[LogFile] = []
        last = self._log.log_files[-1] if self._log.log_files else None
        for growth in self._growths:
            try:
                if growth.is_new:
                    removed = True
                    self._remove(growth.file)
                else:
                    if not growth.file.sealed:
                        cut.append(growth.file)
                    self._cut(growth.file, growth.file.size)
            except OSError:
                # What comes next must stand behind what is left here.
                if last is not None:
                    last.sealed = True
        self._growths.clear()
        self._log.is_writing = False
        return Rollback(removed, cut)

    def close(self) -> None:
        """Cut off what the last file has beyond its end, and save its index."""
        for file in self._log.log_files[-1:]:
            if file.is_longer and not file.sealed:
                with suppress(OSError):
                    self._cut(file, file.size)
            self._log.save_index(file)

    def _finish(self, growth: FileAppend) -> None:
        """
        Leave nothing behind the end of a file that is full, before there is a next one: who finds that takes older
        content for damage. Space that was kept ahead does no harm, and no publish is refused for it.
        """
        if growth.file.recycled:
            self._cut(growth.file, growth.size)
        elif growth.file.is_longer:
            with suppress(OSError):
                self._cut(growth.file, growth.size)

    def _new_growth(self, first: int) -> FileAppend:
        put_total = self._growths[-1].put_total if self._growths else self._log.put_total
        file = LogFile(self._log.path(first), first, 0, put_total)
        file.index = []
        return FileAppend(file, put_total, is_new=True)

    def _write(self, growth: FileAppend) -> None:
        if not growth.buffers:  # it was full
            return
        file = growth.file
        descriptor = self._open_new(file) if growth.is_new else self._log.descriptor(file)
        assert descriptor is not None, "the last file of a log is never replaced"
        if growth.size > file.ahead_to:
            self._keep_space(descriptor, growth)
        descriptor.write(growth.buffers, file.size)

    def _keep_space(self, descriptor: Descriptor, growth: FileAppend) -> None:
        """For what is written now, and for some of what comes next; a file that is used again has it."""
        file = growth.file
        ahead = min(growth.size // _AHEAD_SHARE, _MOST_AHEAD, max(0, self._limit - growth.size))
        file.ahead_to = growth.size + ahead
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

    def _cut(self, file: LogFile, size: int) -> None:
        descriptor = self._log.descriptor(file)
        if descriptor is not None:
            descriptor.truncate(size)
        file.recycled = False
        file.ahead_to = max(size, AHEAD_FROM)

    def _remove(self, file: LogFile) -> None:
        file.gone = True
        self._log.open_files.forget(file)
        with suppress(FileNotFoundError):
            self._log.files.unlink(file.path)

    def _unsaved(self, file: LogFile) -> int:
        return len(file.index or ()) - file.saved
