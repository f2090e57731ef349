"""The lock on a data path: one process at a time uses it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from nsqtw.errors import OptionError

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""A random number of this start of the machine: numbers of file systems and files may be those of its clones, too."""


def lock_data_path(directory: str, program: str = "nsqd") -> int:
    """
    Take the exclusive lock on a data path: a flock on the directory itself, so that a killed process leaves
    nothing behind. It is held until the returned descriptor is closed. OptionError, about another instance of
    `program`, when it cannot be had.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failure:
        text = f"failed to lock data-path: open {directory}: {_reason(failure)}"
        raise OptionError(text + _remedy(directory, failure)) from failure
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        os.close(descriptor)
        raise OptionError(
            f"failed to lock data-path: cannot flock directory {directory} - {_reason(failure)}"
            f" (possibly in use by another instance of {program}); stop it first"
        ) from failure
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        os.close(descriptor)
        raise OptionError(f"failed to lock data-path: {directory}: permission denied{_who()}")
    return descriptor


def data_path_identity(directory: str) -> str:
    """
    Return a text that is the same for each process of this machine that reads it of the same directory, whatever the
    path, also from another container, and for no process of another machine. OSError.
    """
    status = os.stat(directory)
    machine = ""
    with suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:  # only Linux has it
        machine = file.read().strip()
    return f"{machine}:{status.st_dev}:{status.st_ino}"


def _remedy(directory: str, failure: OSError) -> str:
    """The remedy, as the end of the line."""
    if isinstance(failure, FileNotFoundError):
        has_parent = os.path.isdir(os.path.dirname(os.path.abspath(directory)))
        return f"; make it with 'mkdir {'' if has_parent else '-p '}-m 700 {directory}'"
    if isinstance(failure, NotADirectoryError):
        return "; --data-path names a directory"
    return _who() if isinstance(failure, PermissionError) else ""


def _who() -> str:
    return f"; the user with the id {os.geteuid()} has to be able to read it and write to it"


def _reason(failure: OSError) -> str:
    return (failure.strerror or str(failure)).lower()
