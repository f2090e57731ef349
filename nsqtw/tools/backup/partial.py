"""
Directories that are made beside their place under another name, `NAME.partial`, and renamed when they are complete.

Another process that makes the same one is kept away by a lock on `NAME.partial.lock`, which a process that is killed
leaves without effect. The lock is on a file, because NFS has none on directories.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from nsqtw.backends.files import DIRECTORY_MODE, FILE_MODE
from nsqtw.errors import BackendError, OptionError
from nsqtw.tools.owner import Owner

PARTIAL = ".partial"
_LOCK = ".lock"


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
