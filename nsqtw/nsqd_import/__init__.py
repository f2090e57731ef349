"""
Import of the data path of an nsqd 1.x, before the broker is loaded. The reasons are in docs/decisions/0006-import.md.

    records   scratch database: one row for each message and queue, by publish time; finds messages in several queues
    ordering  the order of a topic's messages in its log that needs few pending rows
    log_copy  copies the messages into the log, under new ids
    topic     one topic, from its queue files to its saved cursors
    journal   the state of the import, so that an interrupted one starts over
    importer  all topics; moves the old files away

Every start imports this module, so it contains next to nothing.
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
