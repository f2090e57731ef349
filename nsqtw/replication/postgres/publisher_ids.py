"""
The removal of publishers' ids that are too old, in the manner of `backends.positions.publisher_ids`: each checkpoint
looks at a few rows more of the table, and removes those that are older than the window of their topic.
"""

from __future__ import annotations

from typing import Any

import psycopg

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.replication.postgres.connection import BoundedConnection

_ROWS_AT_LEAST = 2000
_ROWS_FOR_EACH = 4
"""Rows that are looked at for each that is inserted."""
_EVERY_TIME = (1 << 63) - 1

_STEP = """
WITH portion AS (
    SELECT hash, published_ms FROM nsqtw_publisher_id
    WHERE data_set = %(data_set)s AND topic = %(topic)s AND hash > %(after)s ORDER BY hash LIMIT %(room)s
), removed AS (
    DELETE FROM nsqtw_publisher_id AS old USING portion
    WHERE old.data_set = %(data_set)s AND old.topic = %(topic)s AND old.hash = portion.hash
        AND old.published_ms < %(before_ms)s
)
SELECT hash FROM portion ORDER BY hash LIMIT 1 OFFSET %(room)s - 1
"""

Answer = psycopg.Cursor[tuple[Any, ...]] | None


class Sweep:
    """The place in the table where the next checkpoint goes on."""

    def __init__(self) -> None:
        self._windows_ms: dict[str, int] = {}
        """Of topics that may have rows: how long these are kept; 0: all are to be removed."""
        self._swept: set[str] = set()
        """Topics that have no rows, because their window is 0."""
        self._waiting: list[str] = []
        self._topic = ""
        self._after = b""
        self._inserted = 0
        self._now_ms = 0

    def saving(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is saved: learn the windows of its topics."""
        self._inserted = 0
        for name in checkpoint.deleted_topics:
            self._windows_ms.pop(name, None)
        for topic in checkpoint.topics:
            self._inserted += len(topic.publisher_ids)
            if topic.publisher_ids or topic.dedupe_window_ms:
                self._swept.discard(topic.name)
            if topic.dedupe_window_ms is None:
                self._windows_ms.pop(topic.name, None)
            elif topic.name not in self._swept:
                self._windows_ms[topic.name] = topic.dedupe_window_ms
        self._now_ms = checkpoint.pending_ms or self._now_ms

    def begin(self, connection: BoundedConnection, identity: str) -> Answer:
        """Look at the next rows, in the transaction of the checkpoint."""
        if self._topic not in self._windows_ms:
            self._after = b""
            while self._waiting and self._waiting[-1] not in self._windows_ms:
                self._waiting.pop()
            if not self._waiting:
                # Those of which rows become old all the time are the first ones.
                self._waiting = sorted(self._windows_ms, key=self._windows_ms.__getitem__)
            self._topic = self._waiting.pop() if self._waiting else ""
        if not self._topic:
            return None
        window_ms = self._windows_ms[self._topic]
        parameters = {
            "data_set": identity,
            "topic": self._topic,
            "after": self._after,
            "room": _ROWS_AT_LEAST + _ROWS_FOR_EACH * self._inserted,
            "before_ms": self._now_ms - window_ms if window_ms else _EVERY_TIME,
        }
        return connection.execute(_STEP, parameters, binary=True)

    def end(self, answer: Answer) -> None:
        """Take the answer to `begin`."""
        if answer is None:
            return
        row = answer.fetchone()
        if row is not None:
            self._after = row[0]
            return
        if not self._windows_ms[self._topic]:
            del self._windows_ms[self._topic]
            self._swept.add(self._topic)
        self._topic = ""
