"""
Journal of an import: `import.db` in the data path, which exists until the import is finished.

A row for each topic is on stable storage before its first message goes to the log, and gone when the old files are
put away. `written` is noted between the last message and the saving of the cursors: so a topic whose saved end is
there or beyond was saved by the import, and needs nothing but its files put away, if they are still what was read.
Messages beyond `log_end` in the log of any other topic with a row are half an import, and must not reach a channel.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress

from attrs import evolve, field, frozen

from nsqtw.backends.connection import connect
from nsqtw.backends.files import create_private
from nsqtw.nsqd_import import JOURNAL_FILE

_SCHEMA = """
CREATE TABLE IF NOT EXISTS begun (
    topic TEXT PRIMARY KEY,
    log_end INTEGER NOT NULL,
    was_empty INTEGER NOT NULL,
    written INTEGER,
    files TEXT NOT NULL                 -- JSON object: name of a file that was read -> what it was like
) WITHOUT ROWID
"""


@frozen
class JournalEntry:
    """
    A topic being imported: where its log ended before, whether it had nothing kept, the end with the import, and the
    `files` that are in there then (see `SourceTopic.files`).
    """

    topic: str
    log_end: int
    was_empty: bool
    written: int | None = None
    files: Mapping[str, str] = field(factory=dict)


class Journal:
    """The journal in a data path. sqlite3.Error from any method; a change is on stable storage when it returns."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, JOURNAL_FILE)
        create_private(self._path)
        self._connection = connect(self._path)
        self._connection.execute("PRAGMA synchronous = EXTRA")
        self._connection.execute(_SCHEMA)
        rows = self._connection.execute("SELECT * FROM begun").fetchall()
        self.entries = {row[0]: JournalEntry(row[0], row[1], bool(row[2]), row[3], json.loads(row[4])) for row in rows}
        """By topic."""

    def begin(self, topic: str, log_end: int, *, was_empty: bool) -> JournalEntry:
        """Note that messages of a topic are about to be written."""
        self._connection.execute("INSERT INTO begun VALUES (?, ?, ?, NULL, '{}')", (topic, log_end, was_empty))
        entries = self.entries[topic] = JournalEntry(topic, log_end, was_empty)
        return entries

    def record_written(self, topic: str, end: int, files: Mapping[str, str]) -> None:
        """Note that all messages of a topic are in its log, which ends there, and in which files they were."""
        row = (end, json.dumps(files), topic)
        self._connection.execute("UPDATE begun SET written = ?, files = ? WHERE topic = ?", row)
        self.entries[topic] = evolve(self.entries[topic], written=end, files=files)

    def finish(self, topic: str) -> None:
        """Remove the entry of a topic, for which nothing is left to do."""
        self._connection.execute("DELETE FROM begun WHERE topic = ?", (topic,))
        del self.entries[topic]

    def close(self) -> None:
        """Close the file, and remove it unless a topic has an entry."""
        self._connection.close()
        if not self.entries:
            for suffix in ("", "-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path + suffix)
