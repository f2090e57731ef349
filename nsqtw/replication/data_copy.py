"""
The data path of a standby: the segments of the store, as they come, in the backend that serves them after a takeover.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import evolve

from nsqtw.backends.files import Files, backend_error, unlink_all
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, TopicState
from nsqtw.core.segment import Segment, only
from nsqtw.interfaces import IBackend, IBackendQueue, IDamagedBackend, IDamagedQueue
from nsqtw.replication.state_file import StateFile
from nsqtw.replication.store import DataSet, StoredSegment

POSITIONS_FILE = "positions.db"
_SPARSE_BYTES = 64 * 1024 * 1024
"""A log is looked through for messages that the store has freed between others when it has grown by so much."""

Spans = Callable[[str], Iterable[tuple[int, int]]]
"""Returns the segments of a topic in the store: the first sequence and one past the last of each, ascending."""


class DataCopy:
    """The backend of a data path that nothing else uses, and the state of its copy."""

    def __init__(self, backend: IBackend, state: StateFile) -> None:
        self.state = state
        self._backend = backend
        self._queues: dict[str, IBackendQueue] = {name: backend.queue(name) for name in backend.topics()}
        self._sizes: dict[str, int] = {}
        """The bytes of each log when it was looked through last."""

    @property
    def lsn(self) -> int:
        """The LSN up to which the data path has a copy."""
        return self.state.state.lsn

    @property
    def topics(self) -> list[str]:
        """The topics of which something may be stored."""
        return list(self._queues)

    @property
    def end(self) -> int:
        """One past the highest sequence of all topics."""
        return max((queue.end for queue in self._queues.values()), default=0)

    @property
    def is_damaged(self) -> bool:
        """Whether messages were found missing or damaged when the data path was opened."""
        is_damaged = any(IDamagedQueue.providedBy(queue) and queue.is_damaged for queue in self._queues.values())
        return is_damaged or (IDamagedBackend.providedBy(self._backend) and self._backend.damage.total().lost > 0)

    def is_last_owner(self, data_set: DataSet) -> bool:
        """Return whether the last claim of the data set was that of this data path."""
        return bool(data_set.token) and data_set.token == self.state.state.claim

    def apply(self, stored: Sequence[StoredSegment], data_set: DataSet) -> None:
        """
        Store the segments of whole transactions. What the data path has already is left out: it may have more than
        its state says. BackendError.
        """
        writes: dict[IBackendQueue, list[Segment]] = {}
        ends: dict[IBackendQueue, int] = {}
        for _, topic, segment in stored:
            queue = self._queues.get(topic)
            if queue is None:
                queue = self._queues[topic] = self._backend.queue(topic)
            end = ends.get(queue, queue.end)
            writes.setdefault(queue, []).extend(_above(segment, end))
            ends[queue] = max(end, segment.end)
        new = [(queue, segments) for queue, segments in writes.items() if segments]
        if new:
            for error in self._backend.commit(new, False).values():
                raise error
        self.record(data_set, stored[-1].lsn)

    def record(self, data_set: DataSet, lsn: int) -> None:
        """The data path has all segments of the transactions up to this one. BackendError."""
        self.state.record(epoch=data_set.epoch, token=data_set.token, lsn=lsn)

    def trim(self, kept: Mapping[str, int | None], spans: Spans) -> None:
        """
        Free what the store has freed, and delete the topics of which it has nothing: `kept` is the lowest sequence that
        each topic has there. BackendError.
        """
        for topic, queue in list(self._queues.items()):
            lowest = kept.get(topic)
            if lowest is None:
                queue.delete()
                del self._queues[topic]
                self._sizes.pop(topic, None)
                continue
            queue.trim(lowest, ())
            if queue.size > 2 * self._sizes.get(topic, 0) + _SPARSE_BYTES:
                self._look_through(topic, queue, spans)

    def lacks(self, ends: Mapping[str, int]) -> bool:
        """Return whether a log ends before that in the store: `ends` is where each topic ends there."""
        return any(topic in self._queues and self._queues[topic].end < end for topic, end in ends.items())

    def delete(self, topic: str) -> None:
        """Delete the log of a topic. BackendError."""
        queue = self._queues.pop(topic, None)
        if queue is not None:
            queue.delete()

    def _look_through(self, topic: str, queue: IBackendQueue, spans: Spans) -> None:
        """Free what the store has freed between messages that it keeps."""
        end = queue.end
        queue.trim(end, (sequence for span in spans(topic) for sequence in range(*span) if sequence < end))
        self._sizes[topic] = queue.size

    def sync(self) -> None:
        """Bring all messages to stable storage. BackendError."""
        for error in self._backend.commit([], True).values():
            raise error

    def close(self) -> None:
        """Close the backend. The state stays open."""
        self._backend.close()


def rebuild_positions(
    directory: str,
    checkpoints: Iterable[Checkpoint],
    kept: Mapping[str, int | None],
    next_block: int,
    *,
    names_file: str,
    is_clean: bool,
) -> None:
    """
    Make the positions of a data path from those of the store. `kept` is the lowest sequence that each topic has in the
    store: the data path may have lower ones, which are finished, also those of a topic that no checkpoint has yet.
    `names_file`, which names topics and channels, is removed: it may name some that were deleted. `is_clean`: the owner
    had saved everything. BackendError.
    """
    path = os.path.join(directory, POSITIONS_FILE)
    try:
        unlink_all(Files(), [f"{path}-wal", f"{path}-shm", path, os.path.join(directory, names_file)])
    except OSError as error:
        raise backend_error(error, f"removal of {path}") from error
    positions = Positions(path)
    is_complete = False
    try:
        positions.load()
        unsaved = {topic: lowest for topic, lowest in kept.items() if lowest is not None}
        for checkpoint in checkpoints:
            topics = [_raised(topic, kept.get(topic.name) or 0) for topic in checkpoint.topics]
            positions.save(evolve(checkpoint, topics=topics))
            for topic in topics:
                unsaved.pop(topic.name, None)
        new = [TopicState(topic, released=lowest, end=lowest) for topic, lowest in unsaved.items()]
        if new:
            positions.save(Checkpoint(topics=new))
        positions.reserve(next_block)
        is_complete = True
    finally:
        positions.close(is_clean and is_complete)


def saved_topics(directory: str) -> set[str]:
    """Return the topics that the positions of a data path have, which are not used any more. BackendError."""
    positions = Positions(os.path.join(directory, POSITIONS_FILE))
    try:
        return {topic.name for topic in positions.load().topics}
    finally:
        positions.close(False)


def _raised(topic: TopicState, lowest: int) -> TopicState:
    """
    Return the state of a topic of which all messages below `lowest` are finished. It may be older than that: a topic
    that was deleted and created again has saved nothing yet, and the data path may still have the deleted messages.
    """
    if topic.end >= lowest and topic.released >= lowest and all(cursor.next >= lowest for cursor in topic.cursors):
        return topic
    cursors = [_raised_cursor(cursor, lowest) for cursor in topic.cursors]
    return evolve(topic, end=max(topic.end, lowest), released=max(topic.released, lowest), cursors=cursors)


def _raised_cursor(cursor: CursorState, lowest: int) -> CursorState:
    positions = [max(position, lowest) for position in cursor.positions]
    return evolve(cursor, next=max(cursor.next, lowest), positions=positions)


def _above(segment: Segment, end: int) -> Iterator[Segment]:
    """Return what of a segment is from the sequence `end` on."""
    return iter([segment] if segment.first >= end else only(segment, range(end, segment.end)))
