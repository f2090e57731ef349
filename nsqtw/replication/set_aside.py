"""Setting the contents of a data path aside, before another copy takes their place."""

from __future__ import annotations

import os

from nsqtw.backends.files import Files, backend_error
from nsqtw.errors import BackendError
from nsqtw.interfaces import OperatorLog

_OF_FILE_SYSTEM = "lost+found"
"""In the root of a file system; it belongs to root, and cannot be moved."""
PREFIX = "replaced."
"""The directories of what was set aside: replaced.1, replaced.2, ..."""


def set_aside(directory: str, files: Files, log: OperatorLog) -> str:
    """
    Move everything in a data path to a new directory in it, but for what was set aside before. Returns its path; "" if
    there was nothing. BackendError.
    """
    names = [name for name in files.names(directory) if not name.startswith(PREFIX) and name != _OF_FILE_SYSTEM]
    if not names:
        return ""
    number = 1
    while os.path.exists(place := os.path.join(directory, f"{PREFIX}{number}")):
        number += 1
    try:
        files.make_directory(place)
        # The state goes last: an interrupted move is refused as it was, or begins again.
        for name in sorted(names, key=lambda name: name == "replica.state"):
            files.rename(os.path.join(directory, name), os.path.join(place, name))
        files.sync_directory(directory)
    except OSError as error:
        raise backend_error(error, f"setting {directory} aside") from error
    log("warn", "REPLICA: what was in the data path is now in {path}", path=place)
    return place


def check_not_a_copy(directory: str) -> None:
    """BackendError for a data path that is a copy of a data set, and is opened by a broker without --replicate."""
    if os.path.exists(os.path.join(directory, "replica.state")):
        raise BackendError(
            f"{directory} is a copy of a data set, whose owner may be another broker: start with --replicate, "
            "or make it a data path of its own with 'nsqtw replicate detach --data-path'"
        )
