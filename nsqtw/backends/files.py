"""
System calls of storage on disk, and the conversion of their errors.

They go through one object so that a test can stand in between: `nsqtw.testing.files` makes them fail, and
keeps a record from which any crash can be played again.
"""

# mypyc: compiled

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from secrets import randbits
from typing import Final, TypeVar

from mypy_extensions import mypyc_attr

from nsqtw.backends import linux
from nsqtw.errors import BackendError, BackendFull

T = TypeVar("T")

_RANDOM_BITS = 63
_CREATE: Final = os.O_CREAT | os.O_EXCL
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAX_BUFFERS: Final = 1024  # what one system call takes (IOV_MAX)
_TEMPORARY = re.compile(r"\.[0-9]+\.tmp")
_sync = getattr(os, "fdatasync", os.fsync)

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
"""Messages are read by the broker's user alone."""


# Where this is compiled (setup.py), tests and others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class Files:
    """
    Real files. Every method raises OSError as the operating system does, but for want of a descriptor only when
    `release_descriptors` finds none to release.
    """

    release_descriptors: Callable[[], bool] | None = None
    """Closes files that can be opened again. Returns whether there were any."""

    def open(self, path: str, *, create: bool = False, mode: int = FILE_MODE) -> int:
        """A descriptor for reading and writing; with `create` the file must not exist yet, and gets `mode`."""
        return self._with_descriptor(os.open, path, os.O_RDWR | os.O_CLOEXEC | (_CREATE if create else 0), mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes from `position` on; fewer only at the end of the file."""
        return os.pread(fd, size, position)

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        """Write `buffers`, at most 1024, one after the other from `position` on. How many bytes were written."""
        return os.pwritev(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        """Truncate, which also frees what `allocate` has reserved beyond `size`."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Keep space for `size` bytes from `position` on. The file becomes no longer. Does nothing on some systems."""
        linux.keep_space(fd, position, size)

    def sync(self, fd: int) -> None:
        """Return when content and size of the file are on stable storage."""
        _sync(fd)

    def sync_directory(self, path: str) -> None:
        """Return when the entries of a directory are on stable storage."""
        fd = self._with_descriptor(os.open, path, _DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_filesystem(self, directory: str) -> int | None:
        """A descriptor for `sync_filesystem`; None where that could fail and not say so."""
        fd = self._with_descriptor(os.open, directory, _DIRECTORY)
        if linux.tells_what_failed(fd):
            return fd
        os.close(fd)
        return None

    def sync_filesystem(self, fd: int) -> None:
        """Return when everything on this file system is on stable storage. It fails if that is so of any file."""
        linux.sync_file_system(fd)

    def close_filesystem(self, fd: int) -> None:
        os.close(fd)

    def unwritten_bytes(self) -> float:
        """Bytes that all programs have written to any file and that are not on disk yet."""
        return linux.unwritten_bytes()

    def device(self, path: str) -> int:
        """The number of the file system that a path is on."""
        return os.stat(path).st_dev

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def links(self, path: str) -> int:
        """Return how many names a file has."""
        return os.stat(path).st_nlink

    def free_space(self, path: str) -> tuple[int, int]:
        """Bytes that may still be written on the file system of `path`, and the bytes it has."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in no particular order; nothing when there is no such directory."""
        try:
            return self._with_descriptor(os.listdir, directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        os.mkdir(path, DIRECTORY_MODE)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, at once; a file of that name is replaced."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def _with_descriptor(self, call: Callable[..., T], *arguments: str | int) -> T:
        """Make a call that takes a descriptor."""
        while True:
            try:
                return call(*arguments)
            except OSError as error:
                if error.errno not in _TOO_MANY_OPEN or self.release_descriptors is None:
                    raise
                if not self.release_descriptors():
                    raise


def create_private(path: str) -> None:
    """
    Make an empty file that only the broker's user can read, unless there is one. For a library that makes files as the
    umask says: SQLite opens an empty one as a new database, and gives its -wal and -shm the mode that has. What keeps
    the file from being made the library finds out, too, and says in its own words. One that exists is not opened:
    closing it would undo the locks that SQLite has on it in this process.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def write_all(files: Files, fd: int, buffers: Sequence[bytes], position: int) -> int:
    """Write `buffers`, any number, from `position` on. The position behind them. OSError if not all can be written."""
    if len(buffers) > _MAX_BUFFERS:
        buffers = [b"".join(buffers)]
    end = position
    for buffer in buffers:  # compiled, this takes a quarter of what sum and map do
        end += len(buffer)
    position += files.write(fd, buffers, position)
    while position < end:
        # A short write does not say its reason: the next one, of what is left, does.
        rest = b"".join(buffers)[position - end :]
        written = files.write(fd, [rest], position)
        if written <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        position += written
    return end


def replace_file(files: Files, path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """
    Let the file at `path` have this content; with an OSError it is what it was. Nobody sees it half written, whenever
    the machine stops.
    """
    temporary = f"{path}.{randbits(_RANDOM_BITS)}.tmp"
    try:
        fd = files.open(temporary, create=True, mode=mode)
        try:
            write_all(files, fd, [data], 0)
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
    except OSError:
        # If that fails too, it does no harm: the next one has another name.
        with suppress(OSError):
            files.unlink(temporary)
        raise


def remove_temporaries(files: Files, path: str) -> None:
    """
    Remove what processes left that were killed while they replaced the file at `path`. Files that cannot be removed are
    left.
    """
    directory, name = os.path.split(path)
    for entry in files.names(directory):
        if entry.startswith(f"{name}.") and _TEMPORARY.fullmatch(entry, len(name)):
            with suppress(OSError):
                files.unlink(os.path.join(directory, entry))


def unlink_all(files: Files, paths: Iterable[str]) -> None:
    """Remove files, as far as they are there. OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            files.unlink(path)


def backend_error(error: OSError, doing: str) -> BackendError:
    """Convert an error of the operating system: "write 0000.log: no space left on device"."""
    kind = BackendFull if error.errno in _FULL else BackendError
    return kind(f"{doing}: {(error.strerror or str(error)).lower()}")
