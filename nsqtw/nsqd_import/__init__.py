"""
Taking over what an nsqd 1.x left in the data path, before the broker is loaded. docs/decisions/0006-import.md says why
it is done this way.

    records   scratch: one row for each message and queue, sorted by publish time, messages in several queues found
    order     in which order a topic's messages go to its log, so that few held rows are needed
    log_copy  the messages into the log, under new ids
    topic     one topic, from its queue files to its saved cursors
    journal   what was begun, so that an interrupted import starts over
    run       all topics; the old files put away

This module is imported by every start, and so has next to nothing in it.
"""

from __future__ import annotations

import os

from nsqtw.errors import BackendError

JOURNAL_FILE = "import.db"


def is_due(directory: str) -> bool:
    """Return whether a data path has files of an nsqd, or an import that is not finished."""
    try:
        names = os.listdir(directory)
    except OSError as failure:
        raise BackendError(f"list {directory}: {(failure.strerror or str(failure)).lower()}") from failure
    return JOURNAL_FILE in names or any(name.endswith(".dat") and ".diskqueue." in name for name in names)
