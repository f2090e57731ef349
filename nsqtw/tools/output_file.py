"""
One output file of nsq_to_file: written in --work-dir, and moved to --output-dir when it is closed.

A gzip file is a sequence of members, one for each sync, so it can be read up to the last sync whatever happens later.

Where files have revisions, an open file is locked (flock). So a process sees which files in --work-dir another one is
writing, and which were left by one that was killed. Such a file is abandoned: the next process moves it to
--output-dir. Nobody continues or replaces it. Its last message may be cut off; nsqd delivers that again, because it was
not finished.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from nsqtw.tools.file_names import FileNames

_GZIP_WINDOW = 31
_STORED = 0
"""The level of an empty member, which has 23 bytes as that of the original."""
_BUFFER_BYTES = 64 * 1024
_DIRECTORY_MODE = 0o770
_FILE_MODE = 0o640
_LOCKED = (errno.EAGAIN, errno.EACCES)


@attrs.frozen(kw_only=True)
class FileRules:
    """The options that decide how files are opened. `gzip_level` 0 is no gzip; sizes are bytes, 0 for no limit."""

    output_dir: str
    work_dir: str
    gzip_level: int = 0
    rotate_size: int = 0
    rotate_interval: float = 0.0
    has_work_dir: bool = attrs.field(init=False)
    """Whether files are moved when they are closed."""

    @has_work_dir.default
    def _is_elsewhere(self) -> bool:
        return os.path.realpath(self.work_dir) != os.path.realpath(self.output_dir)

    @property
    def needs_revisions(self) -> bool:
        """Whether file names have a number."""
        return self.gzip_level > 0 or self.rotate_size > 0 or self.rotate_interval > 0 or self.has_work_dir

    @property
    def is_exclusive(self) -> bool:
        """Whether an existing file is never continued."""
        return self.gzip_level > 0 or self.rotate_interval > 0


class OutputFile:
    """An open file. `name` still has a place for the revision, `opened` is when it was opened."""

    def __init__(self, rules: FileRules, names: FileNames, name: str, revision: int, now: float) -> None:
        """Open the first revision from `revision` on that can be used. OSError."""
        self._rules = rules
        self._names = names
        self.name = name
        self.opened = now
        self._second = int(now)
        """The second in which the name was compared last: names have no smaller part of the time."""
        self.revision = revision
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._compressor: Any = None
        self._is_listed = False
        """Whether the entry of the directory is on stable storage."""
        self._fd, self.size = self._open()
        if self.size and self._lacks_end():
            self.write(b"\n")  # the next message does not continue a line that a crash cut off

    @property
    def path(self) -> str:
        """The path while it is written."""
        return self._path(self._rules.work_dir)

    def write(self, data: bytes) -> None:
        """Append. OSError."""
        self.size += len(data)
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered >= _BUFFER_BYTES:
            self._flush()

    def sync(self) -> None:
        """Put everything on stable storage. OSError."""
        self._flush()
        if self._compressor is not None:
            write_all(self._fd, self._compressor.flush())
            self._compressor = None
        os.fsync(self._fd)
        if not self._is_listed:
            sync_directory(os.path.dirname(self.path))
            self._is_listed = True

    def close(self) -> str:
        """Sync, close, and move to the output directory. Returns the final path. OSError."""
        if self._rules.gzip_level and not self.size:
            self._compressor = zlib.compressobj(_STORED, zlib.DEFLATED, _GZIP_WINDOW)
        self.sync()
        path = self.path
        if self._rules.has_work_dir:
            path = move(path, self._targets, self.revision)
        os.close(self._fd)
        return path

    def needs_rotation(self, now: float, more: int = 0) -> bool:
        """Return whether the next message belongs to another file, once `more` bytes are written."""
        rules = self._rules
        if int(now) != self._second:
            if self._names.at(now) != self.name:
                return True
            self._second = int(now)
        return (rules.rotate_interval > 0 and now - self.opened > rules.rotate_interval) or (
            rules.rotate_size > 0 and self.size + more > rules.rotate_size
        )

    # -- inside

    def _path(self, directory: str) -> str:
        return os.path.join(directory, self._names.with_revision(self.name, self.revision))

    def _targets(self, revision: int) -> str:
        self.revision = revision
        return self._path(self._rules.output_dir)

    def _open(self) -> tuple[int, int]:
        """Return the descriptor of a file that may be written, and its size."""
        rules = self._rules
        # A link there would let others choose the file that is written.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_EXCL if rules.is_exclusive else 0
        make_directories(os.path.dirname(self.path))
        while True:
            if rules.has_work_dir and os.path.lexists(self._path(rules.output_dir)):
                self.revision += 1
                continue
            try:
                fd = os.open(self.path, flags, _FILE_MODE)
            except FileExistsError:
                self.revision += 1
                continue
            size = os.fstat(fd).st_size
            is_free = not rules.needs_revisions or lock(fd, self.path)
            if is_free and not (rules.rotate_size > 0 and size > rules.rotate_size):
                return fd, size
            os.close(fd)
            self.revision += 1

    def _lacks_end(self) -> bool:
        return self._rules.gzip_level == 0 and os.pread(self._fd, 1, self.size - 1) != b"\n"

    def _flush(self) -> None:
        """Write what is buffered."""
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._buffered = 0
        if self._rules.gzip_level:
            if self._compressor is None:
                self._compressor = zlib.compressobj(self._rules.gzip_level, zlib.DEFLATED, _GZIP_WINDOW)
            data = self._compressor.compress(data)
        write_all(self._fd, data)


def write_all(fd: int, data: bytes) -> None:
    """Write `data` to a file. OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def lock(fd: int, path: str) -> bool:
    """
    Lock the open file at `path` until it is closed or the process ends. Returns False when another process has it
    locked, or has moved it. On file systems without locks every file counts as free.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            return False
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def move(path: str, targets: Callable[[int], str], revision: int) -> str:
    """
    Give a file the first free path of `targets`, from `revision` on, and never replace another file. Both paths are on
    one file system. Returns the new path. OSError.
    """
    while True:
        target = targets(revision)
        make_directories(os.path.dirname(target))
        try:
            os.link(path, target)
        except FileExistsError:
            if not os.path.samefile(path, target):
                revision += 1
                continue
            if os.stat(path).st_nlink < 2:
                return target  # both paths are the same entry of a directory
        sync_directory(os.path.dirname(target))
        os.unlink(path)
        return target


def make_directories(path: str) -> None:
    """Make a directory and those above it, on stable storage. OSError."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        else:
            sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Put the entries of a directory on stable storage. OSError."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def recover(
    rules: FileRules, names: FileNames, moved: Callable[[str, str], None], failed: Callable[[str, OSError], None]
) -> None:
    """
    Move the abandoned files of a topic; empty ones are removed. `moved` is told the old and the new path, `failed` of a
    file that stays where it is.
    """
    if not rules.has_work_dir:
        return
    for name in sorted(_names_in(rules, names)):
        path = os.path.join(rules.work_dir, name)
        try:
            target = _recover(rules, names, name, path)
        except OSError as error:
            failed(path, error)
        else:
            if target:
                moved(path, target)


def _recover(rules: FileRules, names: FileNames, name: str, path: str) -> str:
    """Move a file if it is abandoned. Returns its new path, or "". OSError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        if not lock(fd, path):
            return ""
        if not os.fstat(fd).st_size:
            os.unlink(path)
            return ""
        os.fsync(fd)
        return move(path, lambda more: os.path.join(rules.output_dir, names.renumbered(name, more)), 0)
    finally:
        os.close(fd)


def _names_in(rules: FileRules, names: FileNames) -> Iterator[str]:
    """Yield the names of the topic's files, relative to the work directory."""
    has_directories = "/" in names.pattern or "/" in names.datetime_pattern
    output_dir = os.path.realpath(rules.output_dir)
    for directory, below, files in os.walk(rules.work_dir):
        for file in files:
            name = os.path.relpath(os.path.join(directory, file), rules.work_dir)
            if names.expression.fullmatch(name):
                yield name
        if has_directories:
            below[:] = [one for one in below if os.path.realpath(os.path.join(directory, one)) != output_dir]
        else:
            below.clear()
