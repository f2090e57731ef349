"""Storage in memory, for tests: positions, and a backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from attrs import evolve
from zope.interface import implementer

from nsqtw.backends.dummy import DummyBackend
from nsqtw.core.checkpoint import (
    Checkpoint,
    CursorState,
    HeldRow,
    PendingRow,
    PublisherId,
    SavedState,
    TopicState,
)
from nsqtw.core.due_order import BEHIND_ALL, Key
from nsqtw.core.positions import IPositions
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendQueue


class MemoryBackend(DummyBackend):
    """
    Keeps messages in memory over a close: `MemoryBackend(before)` is what the next process finds of what was committed
    with `before`.
    """

    def __init__(self, before: MemoryBackend | None = None) -> None:
        super().__init__()
        self.failure: BackendError | None = None
        """The error of commits, while it is set."""
        self.good = 0
        """The number of queues of a commit that are stored before it fails."""
        if before is not None:
            self._queues = before._queues

    def topics(self) -> list[str]:
        """IBackend API"""
        return sorted(name for name, queue in self._queues.items() if queue.size)

    def commit(
        self, writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool
    ) -> dict[Any, BackendError]:
        """IBackend API"""
        if self.failure is None:
            return super().commit(writes, durable)
        super().commit(writes[: self.good], durable)
        return {queue: self.failure for queue, _ in writes[self.good :]}

    def close(self) -> None:
        """IBackend API"""


@implementer(IPositions)
class MemoryPositions:
    """
    Keeps what is saved in memory. `MemoryPositions(before)` is what the next process finds of what was saved
    with `before`, which may have been closed or not.
    """

    def __init__(self, before: MemoryPositions | None = None) -> None:
        self.failure: BackendError | None = None
        """The error of reserve and save, while it is set."""
        self.read_failure: BackendError | None = None
        """The error of pending and count_pending, while it is set."""
        self.saved: SavedState = SavedState() if before is None else deepcopy(before.saved)
        self.saved_ids: dict[str, dict[bytes, PublisherId]] = {} if before is None else deepcopy(before.saved_ids)
        """Publishers' ids by topic and hash."""

    def load(self) -> SavedState:
        """IPositions API"""
        loaded = evolve(self.saved, topics=[_without_rows(topic) for topic in self.saved.topics])
        self.saved.clean_stop = False
        return loaded

    def reserve(self, next_block: int) -> None:
        """IPositions API"""
        self._fail()
        self.saved.next_block = max(self.saved.next_block or 0, next_block)

    def save(self, checkpoint: Checkpoint) -> None:
        """IPositions API"""
        self._fail()
        topics = {topic.name: topic for topic in self.saved.topics}
        for name in checkpoint.deleted_topics:
            topics.pop(name, None)
            self.saved_ids.pop(name, None)
        for name, channel in checkpoint.deleted_channels:
            if name in topics:
                topics[name].cursors = [cursor for cursor in topics[name].cursors if cursor.name != channel]
        for topic in checkpoint.topics:
            topics[topic.name] = _merged_topic(topics.get(topic.name), topic)
            self.put_publisher_ids(topic.name, topic.publisher_ids)
            if topic.dedupe_window_ms is not None:
                oldest_ms = checkpoint.pending_ms - topic.dedupe_window_ms
                kept = {one.hash: one for one in self.saved_ids[topic.name].values() if one.published_ms >= oldest_ms}
                self.saved_ids[topic.name] = kept if topic.dedupe_window_ms else {}
        self.saved.topics = list(topics.values())
        if checkpoint.wall_shift_ms is not None:
            self.saved.wall_shift_ms = checkpoint.wall_shift_ms

    def unfinished(self, topic: str) -> tuple[int, Iterable[int]] | None:
        """IPositions API"""
        for saved in self.saved.topics:
            if saved.name == topic:
                below = min((cursor.next for cursor in saved.cursors), default=saved.released)
                below = below if saved.floor is None else min(below, saved.floor)
                sequences = {sequence for cursor in saved.cursors for sequence in _unfinished(cursor)}
                return below, iter(sorted(sequence for sequence in sequences if sequence < below))
        return None

    def pending(self, topic: str, channel: str, after: tuple[float, float], limit: int) -> tuple[list[PendingRow], Key]:
        """IPositions API"""
        self._fail_to_read()
        rows = [row for row in self._pending(topic, channel) if (row.due_ms, row.sequence) > after]
        end = (rows[limit - 1].due_ms, rows[limit - 1].sequence) if len(rows) >= limit else BEHIND_ALL
        return rows[:limit], end

    def count_pending(self, topic: str, channel: str, after: tuple[float, float], until_ms: float, below: float) -> int:
        """IPositions API"""
        self._fail_to_read()
        rows = [row for row in self._pending(topic, channel) if (row.due_ms, row.sequence) > after]
        return sum(row.due_ms <= until_ms and row.sequence < below for row in rows)

    def pending_row(self, topic: str, channel: str, sequence: int) -> PendingRow | None:
        """IPositions API"""
        self._fail_to_read()
        return next((row for row in self._pending(topic, channel) if row.sequence == sequence), None)

    def held(self, topic: str, channel: str) -> list[HeldRow]:
        """IPositions API"""
        sequences = {row.sequence for row in self._pending(topic, channel)}
        rows = [row for cursor in self._cursors(topic, channel) for row in cursor.held]
        if rows:
            self._fail_to_read()
        return sorted(row for row in rows if row.sequence in sequences)

    def publisher_ids(self, topic: str, hashes: Sequence[bytes]) -> list[PublisherId]:
        """IPositions API"""
        self._fail_to_read()
        saved = self.saved_ids.get(topic, {})
        return [saved[found] for found in hashes if found in saved]

    def all_publisher_ids(self, topic: str) -> list[PublisherId]:
        """IPositions API"""
        self._fail_to_read()
        return [*self.saved_ids.get(topic, {}).values()]

    def put_publisher_ids(self, topic: str, ids: Sequence[PublisherId]) -> None:
        """IPositions API"""
        self.saved_ids.setdefault(topic, {}).update({one.hash: one for one in ids})

    def forget_publisher_ids(self, topic: str, start: int) -> None:
        """IPositions API"""
        kept = {one.hash: one for one in self.saved_ids.get(topic, {}).values() if one.sequence < start}
        self.saved_ids[topic] = kept

    def forget_pending(self, topic: str, channel: str, start: int) -> int:
        """IPositions API"""
        count = 0
        for cursor in self._cursors(topic, channel):
            count += sum(row.sequence >= start for row in cursor.pending)
            cursor.pending = [row for row in cursor.pending if row.sequence < start]
        return count

    def forget_delays(self) -> None:
        """IPositions API"""
        for topic in self.saved.topics:
            for cursor in topic.cursors:
                cursor.pending = [row._replace(due_ms=0) for row in cursor.pending]

    def close(self, clean: bool) -> None:
        """IPositions API"""
        self.saved.clean_stop = clean

    def _pending(self, topic: str, channel: str) -> list[PendingRow]:
        rows = [row for cursor in self._cursors(topic, channel) for row in cursor.pending]
        return sorted(rows, key=lambda row: (row.due_ms, row.sequence))

    def _cursors(self, topic: str, channel: str) -> list[CursorState]:
        cursors = [cursor for saved in self.saved.topics if saved.name == topic for cursor in saved.cursors]
        return [cursor for cursor in cursors if cursor.name == channel]

    def _fail_to_read(self) -> None:
        if self.read_failure is not None:
            raise self.read_failure

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def _without_rows(topic: TopicState) -> TopicState:
    """Return a copy of the state, as it is loaded."""
    cursors = [
        evolve(
            cursor,
            first_deliveries=list(cursor.first_deliveries),
            interrupted=list(cursor.interrupted),
            pending=[],
            pending_count=len(cursor.pending),
            held=[],
        )
        for cursor in topic.cursors
    ]
    return evolve(topic, dropped=list(topic.dropped), waiting=list(topic.waiting), cursors=cursors)


def _merged_topic(old: TopicState | None, new: TopicState) -> TopicState:
    merged = evolve(new, dropped=list(new.dropped), waiting=list(new.waiting), publisher_ids=[])
    cursors = {cursor.name: cursor for cursor in old.cursors} if old is not None else {}
    for cursor in new.cursors:
        cursors[cursor.name] = _merged_cursor(cursors.get(cursor.name), cursor)
    merged.cursors = list(cursors.values())
    return merged


def _merged_cursor(old: CursorState | None, new: CursorState) -> CursorState:
    pending = {row.sequence: row for row in old.pending} if old is not None and not new.emptied else {}
    if new.forgotten_from is not None:
        pending = {sequence: row for sequence, row in pending.items() if sequence < new.forgotten_from}
    for sequence in new.dropped_rows:
        pending.pop(sequence, None)
    pending.update({row.sequence: row for row in new.pending})
    for run in new.runs:
        pending.update({run.first + n: PendingRow(run.first + n, 0, run.due_ms) for n in range(run.count)})
    rows = sorted(pending.values(), key=lambda row: row.sequence)
    changed = {row.sequence for row in new.pending}
    held = [] if old is None else [row for row in old.held if row.sequence in pending and row.sequence not in changed]
    merged = evolve(new, first_deliveries=list(new.first_deliveries), interrupted=list(new.interrupted))
    merged.pending, merged.runs, merged.held = rows, [], held + new.held
    merged.dropped_rows, merged.emptied, merged.forgotten_from = [], False, None
    return merged


def _unfinished(cursor: CursorState) -> list[int]:
    return cursor.first_deliveries + [row.sequence for row in cursor.pending]
