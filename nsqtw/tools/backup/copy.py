"""
Copies of the files of a data path, in the order of `nsqtw.tools.backup`, each on stable storage when it is done.

Databases are copied by SQLite's online backup from one read transaction, so a database that changes meanwhile does not
begin the copy again. A log file may grow meanwhile: as many bytes are copied as it had when it was opened, and what is
not a whole record at its end is cut off afterwards. Files that never change again may be linked instead of copied.

A directory is made beside its place under another name, `NAME.partial`, and renamed when it is complete. Another
process that makes the same one is kept away by a lock on `NAME.partial.lock`, which a process that is killed leaves
without effect. The lock is on a file, because NFS has none on directories.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import chain
from typing import TextIO

from nsqtw.backends.connection import connect, connect_read_only
from nsqtw.backends.files import DIRECTORY_MODE, FILE_MODE, Files, backend_error
from nsqtw.backends.manifest import MANIFEST_FILE
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import CopiedFile
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.nsqd.nsqd_dat import METADATA_FILE
from nsqtw.plugins import backend_description
from nsqtw.tools.backend_files import known_backends
from nsqtw.tools.backup.contents import CHUNK_BYTES, Progress, StoredFile, is_file_of_data_path
from nsqtw.tools.fsck.manifest import check_manifest
from nsqtw.tools.owner import Owner, create, open_regular

FIRST_SECONDS = 1.0
"""What takes no longer has no line."""
_AGAIN_SECONDS = 0.2
_MEGABYTE = 1 << 20
PARTIAL = ".partial"
_LOCK = ".lock"
_PAGES = 1024


class ProgressLine:
    """The progress of `what`, of about `total` bytes."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr  # noqa: TID251 - no foreign text, and control characters of its own
        self._is_shown = self._stream.isatty()
        self._next = time.monotonic() + FIRST_SECONDS
        self._done = 0
        self._has_line = False

    def __call__(self, count: int) -> None:
        """So many more bytes are done."""
        self._done += count
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + _AGAIN_SECONDS
            self._has_line = True
            share = min(99, 100 * self._done // self._total) if self._total else 99
            self._stream.write(f"\r{self._what}: {self._done // _MEGABYTE} MB, {share} %")
            self._stream.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def only_one(target: str, beside: Owner) -> Iterator[None]:
    """
    While no other process makes `target`, with the rights of `beside` on the directory that it is in. OptionError when
    one does. OSError.
    """
    path = f"{target}{PARTIAL}{_LOCK}"
    with beside.rights():
        os.makedirs(os.path.dirname(path), DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        if not _is_locked(descriptor, path):
            raise OptionError(f"another nsqtw makes {target} at this moment")
        try:
            yield
        finally:
            with beside.rights():
                os.unlink(path)
    finally:
        os.close(descriptor)


@contextmanager
def partial_directory(target: str, beside: Owner, owner: Owner) -> Iterator[str]:
    """
    An empty directory of `owner` beside `target`, which is removed unless it has another name at the end. It is made
    with the rights of `beside`. Call it within `only_one`. OSError.
    """
    partial = target + PARTIAL
    with beside.rights():
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        os.mkdir(partial, DIRECTORY_MODE)
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0:
            if os.fstat(descriptor).st_uid != beside.uid:
                raise BackendError(f"{partial} was replaced")
            os.fchown(descriptor, owner.uid, owner.gid)
    finally:
        os.close(descriptor)
    try:
        yield partial
    finally:
        for one in (owner, beside):
            with one.rights():
                shutil.rmtree(partial, ignore_errors=True)


def _is_locked(descriptor: int, path: str) -> bool:
    """Lock the open file at `path`. False when another process has the lock, or has just removed the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def data_path_bytes(directory: str) -> int:
    """Return about how many bytes there are to copy. NsqtwError, OSError."""
    copied = known_backends().ask(lambda one: [file.name for file in one.copied_files(directory)]).values()
    size = 0
    for name in (POSITIONS_FILE, *chain.from_iterable(copied)):
        with suppress(FileNotFoundError):
            size += os.path.getsize(os.path.join(directory, name))
    return size


def copy_data_path(source: str, target: str, reader: Owner, progress: Progress, *, links: bool) -> None:
    """
    Copy what a broker has stored to `target`, an empty directory, with the rights of `reader` on the data path. With
    `links`, files that never change again are linked where that is possible. NsqtwError.
    """
    try:
        _copy_database(source, target, POSITIONS_FILE, reader, progress)
        for name in (MANIFEST_FILE, METADATA_FILE):
            with suppress(FileNotFoundError):
                copy_file(os.path.join(source, name), os.path.join(target, name), reader, progress)
        # The manifest of the copy is a regular file.
        recorded = [backend_description(name) for name in check_manifest(target).recorded if name]
        backends = known_backends(recorded)
        with reader.rights():
            copied = backends.ask(lambda one: [*one.copied_files(source)], recorded or backends.known)
        for description, files in copied.items():
            for file in files:
                if not is_file_of_data_path(file.name, [backends.known[description]]):
                    raise BackendError(f"the backend {description!r} names a file that is none of it: {file.name!r}")
                _copy(source, target, file, reader, progress, links=links)
        sync_directories(target)
    except OSError as failure:
        raise backend_error(failure, f"copy of {failure.filename or source}") from failure


def copy_file(source: str, target: str, reader: Owner, progress: Progress, writer: Owner | None = None) -> StoredFile:
    """
    Copy the bytes that a file has now, with the rights of `reader` on the source and those of `writer` on the target;
    none for those that this process has. Returns what was copied. BackendError, OSError.
    """
    with reader.rights():
        reading = open(open_regular(source), "rb")  # noqa: SIM115  # read without the rights
    with reading:
        size = left = os.fstat(reading.fileno()).st_size
        digest = hashlib.sha256()
        with writer.rights() if writer is not None else nullcontext():
            writing = open(create(target, FILE_MODE), "wb")  # noqa: SIM115  # written without the rights
        with writing:
            while left and (chunk := reading.read(min(left, CHUNK_BYTES))):
                writing.write(chunk)
                digest.update(chunk)
                left -= len(chunk)
                progress(len(chunk))
            writing.flush()
            os.fsync(writing.fileno())
    return StoredFile(size - left, digest.hexdigest())


def sync_directories(directory: str) -> None:
    """Put the names of all files of a copy on stable storage. OSError."""
    files = Files()
    for entry in os.scandir(directory):
        if entry.is_dir():
            files.sync_directory(entry.path)
    files.sync_directory(directory)


def _copy_database(source: str, target: str, name: str, reader: Owner, progress: Progress) -> None:
    """Copy a database, if it is there. BackendError, OSError."""
    path, copy = os.path.join(source, name), os.path.join(target, name)
    with reader.rights():
        if not _has_database(path):
            return
    os.close(create(copy, FILE_MODE))
    copied = 0

    def told(status: int, remaining: int, total: int) -> None:
        nonlocal copied
        done = (total - remaining) * page_bytes
        progress(done - copied)
        copied = done

    try:
        with closing(connect(copy)) as writing:
            writing.execute("PRAGMA journal_mode = MEMORY")  # the reader may have no right to make a file there
            with reader.rights(), closing(connect_read_only(path)) as reading:
                page_bytes = int(reading.execute("PRAGMA page_size").fetchone()[0])
                # One transaction: what is written meanwhile does not begin the copy again.
                reading.execute("BEGIN")
                reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
                reading.backup(writing, pages=_PAGES, progress=told)
            writing.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as failure:
        raise BackendError(f"copy of {path}: {failure}") from failure
    with open(copy, "rb+") as file:
        os.fsync(file.fileno())


def _has_database(path: str) -> bool:
    """Return whether a database is there that is not empty. BackendError when it, or a file of it, is no file."""
    sizes = []
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            descriptor = open_regular(path + end)
            sizes.append((end, os.fstat(descriptor).st_size))
            os.close(descriptor)
    return ("", 0) not in sizes and bool(sizes) and sizes[0][0] == ""


def _copy(source: str, target: str, file: CopiedFile, reader: Owner, progress: Progress, *, links: bool) -> None:
    """Copy a file of a backend. BackendError, OSError."""
    path, copy = os.path.join(source, file.name), os.path.join(target, file.name)
    os.makedirs(os.path.dirname(copy), DIRECTORY_MODE, exist_ok=True)
    if file.kind == "database":
        _copy_database(source, target, file.name, reader, progress)
        return
    with suppress(FileNotFoundError):  # the topic is deleted meanwhile
        if not (links and file.kind == "finished" and _linked(path, copy, reader)):
            copy_file(path, copy, reader, progress)


def _linked(path: str, copy: str, reader: Owner) -> bool:
    """Link a file; False on another file system. BackendError when it is not the file that `reader` may read."""
    with reader.rights():
        descriptor = open_regular(path)
    try:
        os.link(path, copy, follow_symlinks=False)
        if not os.path.samestat(os.fstat(descriptor), os.lstat(copy)):
            os.unlink(copy)
            raise BackendError(f"{path} was replaced during the backup")
    except FileNotFoundError:
        raise
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
