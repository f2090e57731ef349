"""
Freeing rows: segments without needed messages are deleted, those with few are replaced by these.

A segment that is mostly needed stays as it is.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable
from itertools import takewhile

from nsqtw.backends.sqlite.rows import read_row
from nsqtw.backends.sqlite.schema import insert_segments
from nsqtw.backends.trim_throttle import TrimPace
from nsqtw.core.segment import only

_WORTH = 4
"""A segment is replaced when that leaves fewer messages of it by this factor."""
ROWS_AT_ONCE = 2000
"""Segments looked at in one transaction: the next one goes on behind them."""

_BELOW = """
SELECT id, first, last, ifnull(length(frames), 0) FROM segment
    WHERE topic = ? AND last >= ? AND last < ? ORDER BY last LIMIT ?
"""


class Trim:
    """Frees space of one topic."""

    def __init__(self, topic_id: int) -> None:
        self._topic_id = topic_id
        self._start = 0
        self._pace = TrimPace()

    @property
    def is_partial(self) -> bool:
        """Whether the last call left rows unchecked."""
        return self._start > 0

    def trim(
        self, connection: sqlite3.Connection, below: int, keep: Iterable[int], most_rows: int = ROWS_AT_ONCE
    ) -> int:
        """
        See `IBackendQueue.trim`; in a transaction, for at most `most_rows` rows. Returns how many bytes of frames
        were freed.
        """
        if not self._pace.is_due(0):
            return 0
        rows = connection.execute(_BELOW, (self._topic_id, self._start, below, most_rows)).fetchall()
        self._start = int(rows[-1][2]) + 1 if len(rows) == most_rows else 0
        if not rows:
            return 0
        end = int(rows[-1][2]) + 1
        kept_sequences = list(takewhile(lambda sequence: sequence < end, keep))
        self._pace.looked_at(len(kept_sequences), 0)
        freed = 0
        for row_id, first, last, size in rows:
            if type(first) is not int or type(last) is not int or first > last:
                continue  # its contents are unknown
            of_row = kept_sequences[bisect_left(kept_sequences, first) : bisect_left(kept_sequences, last + 1)]
            if not of_row:
                connection.execute("DELETE FROM segment WHERE id = ?", (row_id,))
                freed += size
            elif len(of_row) * _WORTH <= last + 1 - first:
                freed += size - self._keep_only(connection, row_id, size, of_row)
        return freed

    def _keep_only(self, connection: sqlite3.Connection, row_id: int, size: int, kept_sequences: list[int]) -> int:
        """Replace a row by what is wanted of it. Returns its new size."""
        row = read_row(connection, row_id)
        if row.fault():
            return size  # cannot be split; reading it reports the damage
        kept = only(row.segment(), kept_sequences)
        connection.execute("DELETE FROM segment WHERE id = ?", (row_id,))
        insert_segments(connection, self._topic_id, kept)
        return sum([len(segment.frames) for segment in kept])
