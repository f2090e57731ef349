"""
A whole broker as a Twisted service: locks its data path, binds, opens what is stored, serves, and stops cleanly.

The order of the steps and the texts are nsqd's (nsqd specification 4.3, 6.5).
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from nsqtw.errors import OptionError
from nsqtw.net.listen import Listener
from nsqtw.options import Options, check

NSQD_VERSION = "1.3.0"
"""The nsqd whose behaviour this is; clients are told it."""


def version_line(program: str = "nsqd") -> str:
    """What --version prints and the log starts with."""
    # Client suites read this with a pattern that knows lower-case letters, digits, dots and dashes.
    return f"{program} v{NSQD_VERSION}-nsqtw (built w/python{platform.python_version().rstrip('+')})"


def lock_data_path(directory: str) -> int:
    """
    Take the exclusive lock on a data path: a flock on the directory itself, so that a killed process leaves
    nothing behind. It is held until the returned descriptor is closed. OptionError when it cannot be had.
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
            " (possibly in use by another instance of nsqd)"
        ) from failure
    return descriptor


def _reason(failure: OSError) -> str:
    return (failure.strerror or str(failure)).lower()
