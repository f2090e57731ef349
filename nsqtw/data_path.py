"""The data path belongs to one process."""

from __future__ import annotations

import fcntl
import os

from nsqtw.errors import OptionError


def lock_data_path(directory: str, program: str = "nsqd") -> int:
    """
    Take the exclusive lock on a data path: a flock on the directory itself, so that a killed process leaves
    nothing behind. It is held until the returned descriptor is closed. OptionError, about another instance of
    `program`, when it cannot be had.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failure:
        raise OptionError(f"failed to lock data-path: open {directory}: {_reason(failure)}") from failure
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        os.close(descriptor)
        raise OptionError(
            f"failed to lock data-path: cannot flock directory {directory} - {_reason(failure)}"
            f" (possibly in use by another instance of {program})"
        ) from failure
    return descriptor


def _reason(failure: OSError) -> str:
    return (failure.strerror or str(failure)).lower()
