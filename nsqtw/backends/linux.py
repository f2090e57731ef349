"""
Calls of Linux that Python does not have. On other systems they do nothing, or report that they are missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Callable
from math import inf

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE in <linux/falloc.h>
_STATFS_BYTES = 512  # more than any struct statfs has; it begins with the type, a long
_MEMORY = "/proc/meminfo"
_UNWRITTEN = re.compile(rb"^(?:Dirty|Writeback): *([0-9]+) kB$", re.MULTILINE)

# ext4, xfs and btrfs, by their numbers in <linux/magic.h>. Of what is stacked on them, as containers' overlayfs is,
# syncfs reports no error of the layer below. Before 5.8 it reported none of files, before 5.17 none of journals.
_TELLING_TYPES = (0xEF53, 0x58465342, 0x9123683E)
_TELLING_SINCE = 5, 17


def _find(name: str, *types: type) -> Callable[..., int] | None:
    """A function of the C library, which lets other threads run and sets ctypes' errno."""
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    call.argtypes = types
    function: Callable[..., int] = call
    return function


_fallocate = _find("fallocate64", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_syncfs = _find("syncfs", ctypes.c_int)
_fstatfs = _find("fstatfs", ctypes.c_int, ctypes.c_char_p)


def keep_space(fd: int, position: int, size: int) -> None:
    """
    Give a file space, and not make it longer: Python's posix_fallocate does, and writes zeros where a file system
    cannot keep space. OSError.
    """
    if _fallocate is not None and _fallocate(fd, _KEEP_SIZE, position, size):
        raise _last_error()


def sync_file_system(fd: int) -> None:
    """
    Return when all that was written to the file system of an open file, or its names, is on stable storage. OSError if
    some of it, by whomever, could not be written since the file was opened; then it is told once.
    """
    if _syncfs is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _syncfs(fd):
        raise _last_error()
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:  # after a failure, and then there was nothing to sync
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def tells_what_failed(fd: int) -> bool:
    """Return whether `sync_file_system` can be relied on to tell of every failure (syncfs(2), "Versions")."""
    if _syncfs is None or _fstatfs is None or _version() < _TELLING_SINCE:
        return False
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    return not _fstatfs(fd, status) and ctypes.c_long.from_buffer(status).value in _TELLING_TYPES


def unwritten_bytes() -> float:
    """Return the bytes that all programs have written and that are not on disk yet; infinite when unknown."""
    try:
        with open(_MEMORY, "rb") as memory:
            counts = _UNWRITTEN.findall(memory.read())
    except OSError:
        return inf
    return sum(map(int, counts)) * 1024 if counts else inf


def _version() -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
