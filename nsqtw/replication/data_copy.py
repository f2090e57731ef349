"""
The data path of a standby: the segments of the store, as they come, in the backend that serves them after a takeover.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from nsqtw.backends.files import Files, backend_error, unlink_all
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint
from nsqtw.core.segment import Segment, only
from nsqtw.interfaces import IBackend, IBackendQueue
from nsqtw.replication.state_file import StateFile
from nsqtw.replication.store import StoredSegment


class DataCopy:
    """The backend of a data path that nothing else uses, and the state of its copy."""

    def __init__(self, backend: IBackend, state: StateFile) -> None:
        self.state = state
        self._backend = backend
        self._queues: dict[str, IBackendQueue] = {name: backend.queue(name) for name in backend.topics()}

    @property
    def lsn(self) -> int:
        """The LSN up to which the data path has a copy."""
        return self.state.state.lsn

    @property
    def topics(self) -> list[str]:
        """The topics of which something may be stored."""
        return list(self._queues)

    def apply(self, stored: Sequence[StoredSegment], epoch: int) -> None:
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
        self.state.record(epoch=epoch, lsn=stored[-1].lsn)

    def trim(self, kept: Mapping[str, int]) -> None:
        """
        Free what the store has freed: `kept` is the lowest sequence that each topic has there. Delete the topics that
        are not in it. BackendError.
        """
        for topic, queue in list(self._queues.items()):
            if topic in kept:
                queue.trim(kept[topic], ())
            else:
                queue.delete()
                del self._queues[topic]

    def sync(self) -> None:
        """Bring all messages to stable storage. BackendError."""
        for error in self._backend.commit([], True).values():
            raise error

    def close(self) -> None:
        """Close the backend. The state stays open."""
        self._backend.close()


def rebuild_positions(
    directory: str,
    state: StateFile,
    checkpoints: Iterable[Checkpoint],
    next_block: int,
    names_file: str,
    *,
    is_clean: bool,
) -> None:
    """
    Make the positions of a data path from those of the store. `names_file`, which names topics and channels, is
    removed: it may name some that were deleted. `is_clean`: the owner had saved everything. BackendError.
    """
    state.forget_checkpoint()
    path = os.path.join(directory, "positions.db")
    try:
        unlink_all(Files(), [f"{path}-wal", f"{path}-shm", path, os.path.join(directory, names_file)])
    except OSError as error:
        raise backend_error(error, f"removal of {path}") from error
    positions = Positions(path)
    is_complete = False
    try:
        positions.load()
        for checkpoint in checkpoints:
            positions.save(checkpoint)
        positions.reserve(next_block)
        is_complete = True
    finally:
        positions.close(is_clean and is_complete)


def _above(segment: Segment, end: int) -> list[Segment]:
    """Return what of a segment is from the sequence `end` on."""
    return [segment] if segment.first >= end else only(segment, range(end, segment.end))
