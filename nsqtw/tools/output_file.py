"""
One output file of nsq_to_file: written in --work-dir, and moved to --output-dir when it is closed.

A gzip file is a sequence of members, one for each sync, so it can be read up to the last sync whatever happens later.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from contextlib import suppress
from itertools import count
from typing import BinaryIO

import attrs

from nsqtw.tools.file_names import FileNames

_GZIP_WINDOW = 31
_BUFFER_BYTES = 256 * 1024
_DIRECTORY_MODE = 0o770


@attrs.frozen(kw_only=True)
class FileRules:
    """The options that decide how files are opened. `gzip_level` 0 is no gzip; sizes are bytes, 0 for no limit."""

    output_dir: str
    work_dir: str
    gzip_level: int = 0
    rotate_size: int = 0
    rotate_interval: float = 0.0

    @property
    def has_work_dir(self) -> bool:
        """Whether files are moved when they are closed."""
        return self.work_dir != self.output_dir

    @property
    def needs_revisions(self) -> bool:
        """Whether file names have a number."""
        return bool(self.gzip_level or self.rotate_size or self.rotate_interval or self.has_work_dir)

    @property
    def is_exclusive(self) -> bool:
        """Whether an existing file is never continued."""
        return bool(self.gzip_level or self.rotate_interval)


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
        self._file, self.size = self._open()
        self._compressor = self._new_compressor()
        self._is_member_empty = True

    def write(self, data: bytes) -> None:
        """Append. OSError."""
        self.size += len(data)
        if self._compressor is not None:
            self._is_member_empty = False
            data = self._compressor.compress(data)
        self._file.write(data)

    def sync(self) -> None:
        """Put everything on stable storage. OSError."""
        if self._compressor is not None and not self._is_member_empty:
            self._file.write(self._compressor.flush())
            self._compressor = self._new_compressor()
            self._is_member_empty = True
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> str:
        """Sync, close, and move to the output directory. Returns the final path. OSError."""
        if self._compressor is not None and not self.size:
            self._is_member_empty = False  # an empty file has one empty member
        self.sync()
        self._file.close()
        path = self._path(self._rules.work_dir)
        return self._move(path) if self._rules.has_work_dir else path

    def needs_rotation(self, now: float) -> bool:
        """Whether the next message belongs to another file."""
        rules = self._rules
        if int(now) != self._second:
            self._second = int(now)
            if self._names.at(now) != self.name:
                return True
        return (rules.rotate_interval > 0 and now - self.opened > rules.rotate_interval) or (
            rules.rotate_size > 0 and self.size > rules.rotate_size
        )

    # -- inside

    def _path(self, directory: str) -> str:
        return os.path.join(directory, self._names.with_revision(self.name, self.revision))

    def _open(self) -> tuple[BinaryIO, int]:
        rules = self._rules
        while True:
            path = self._path(rules.work_dir)
            os.makedirs(os.path.dirname(path), _DIRECTORY_MODE, exist_ok=True)
            if rules.has_work_dir and os.path.exists(self._path(rules.output_dir)):
                self.revision += 1
                continue
            try:
                flags = os.O_EXCL if rules.is_exclusive else os.O_APPEND
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666)
            except FileExistsError:
                self.revision += 1
                continue
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            if rules.rotate_size and size > rules.rotate_size:
                os.close(descriptor)
                self.revision += 1
                continue
            return open(descriptor, "wb", buffering=_BUFFER_BYTES), size

    def _move(self, path: str) -> str:
        """Move the file to the output directory without replacing another one."""
        while True:
            target = self._path(self._rules.output_dir)
            if _move(path, target):
                return target
            self.revision += 1

    def _new_compressor(self) -> zlib._Compress | None:
        level = self._rules.gzip_level
        return zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW) if level else None


def move_leftovers(rules: FileRules, names: FileNames) -> list[str]:
    """
    Move the files that a killed process left in the work directory. Those of running processes are locked, and stay.
    Returns the new paths. OSError.
    """
    moved: list[str] = []
    if not rules.has_work_dir:
        return moved
    for directory, _, files in os.walk(rules.work_dir):
        for file in sorted(files):
            path = os.path.join(directory, file)
            match = names.all_names.fullmatch(os.path.relpath(path, rules.work_dir))
            if match is None or _is_locked(path):
                continue
            for revision in count():
                target = os.path.join(rules.output_dir, f"{match['start']}-{revision:06d}{match['end']}")
                if _move(path, target):
                    moved.append(target)
                    break
    return moved


def _move(path: str, target: str) -> bool:
    """Move a file. Returns False when there is another one at `target`. OSError."""
    os.makedirs(os.path.dirname(target), _DIRECTORY_MODE, exist_ok=True)
    try:
        os.link(path, target)
    except FileExistsError:
        return False
    os.unlink(path)
    return True


def _is_locked(path: str) -> bool:
    """Return whether a running process writes the file."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return True  # no locks here: it may be in use
    return False
