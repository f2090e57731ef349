"""
The rights of the owner of a directory, for root.

Who may write to a directory may at any time replace a file in it by a symlink, a hard link or a FIFO. So root opens and
makes what is in a data path or a backup with the rights of the owner of the directory: it reads and changes nothing
that this user could not. A check, a repair and a migration become that user. A backup and a restore have a second
directory, and a file that they read must be regular, and no symlink.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from attrs import frozen

from nsqtw.errors import BackendError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO would block
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Owner:
    """The user and the group that a directory belongs to."""

    directory: str
    uid: int
    gid: int

    @classmethod
    def of(cls, path: str) -> Self:
        """Return the owner of a directory, or of the nearest one above it that is there. OSError."""
        while True:
            with suppress(FileNotFoundError):
                status = os.stat(path)
                return cls(path, status.st_uid, status.st_gid)
            path = os.path.dirname(os.path.abspath(path))

    @contextmanager
    def rights(self) -> Iterator[None]:
        """
        While root has no other rights than this user. Does nothing for other users than root, and for what is root's.
        BackendError when the user cannot reach the directory. OSError.
        """
        if os.geteuid() != 0 or self.uid == 0:
            yield
            return
        group, groups = os.getegid(), os.getgroups()
        os.setgroups([self.gid])
        try:
            os.setegid(self.gid)
            os.seteuid(self.uid)
            if not os.access(self.directory, os.X_OK, effective_ids=True):
                remedy = "run nsqtw where it can, such as in its container"
                raise BackendError(f"the user {self.uid}, the owner of {self.directory}, cannot reach it: {remedy}")
            yield
        finally:
            os.seteuid(0)
            os.setegid(group)
            os.setgroups(groups)

    def become(self) -> None:
        """
        Take the rights of this user for good. Does nothing for other users than root, and for what is root's.
        BackendError when the user cannot reach the directory. OSError.
        """
        with self.rights():
            pass  # it can reach the directory
        if os.geteuid() == 0 and self.uid != 0:
            os.setgroups([self.gid])
            os.setgid(self.gid)
            os.setuid(self.uid)


def open_regular(path: str) -> int:
    """Open a file for reading. BackendError when it is a symlink or no regular file. OSError."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            raise BackendError(f"{path} is a symlink, and a backup has files only") from failure
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BackendError(f"{path} is no regular file")
    return descriptor


def create(path: str, mode: int) -> int:
    """Make a file, and open it for writing. OSError."""
    return os.open(path, _CREATE, mode)
