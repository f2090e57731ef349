"""The first copy of a data path: everything that it has, in the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from attrs import evolve

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint
from nsqtw.core.positions import IPositions
from nsqtw.core.segment import Segment
from nsqtw.core.sequences import BLOCK_SIZE, random_block
from nsqtw.errors import NotACopy, ReplicaError
from nsqtw.interfaces import IBackend, IBackendQueue
from nsqtw.names import is_ephemeral
from nsqtw.replication.data_copy import POSITIONS_FILE
from nsqtw.replication.ownership import RESERVED_BLOCKS
from nsqtw.replication.snapshot import snapshot
from nsqtw.replication.state_file import CopyState, new_state, read_state
from nsqtw.replication.store import DataSet, IReplicaStore

_READ_BYTES = 4 * 1024 * 1024
_LEASE_SECONDS = 1e9
"""It is released when it is complete. Until then nobody may take it for complete, however long that takes."""


def seed_data_path(
    store: IReplicaStore, directory: str, open_backend: Callable[[], IBackend], *, is_replaced: bool
) -> CopyState:
    """
    Create the data set with what a data path has that nothing else uses; with `is_replaced`, in the place of the one
    that is there. Returns the state of the data path. NotACopy for the copy of a standby, which has no positions.
    DataSetExists, BackendError.
    """
    state = read_state(directory)
    if state is not None and not (state.checkpoint_lsn and state.is_trusted):
        raise NotACopy(
            f"{directory} is the copy of a standby, or may lack messages: only the data path of the last owner can "
            "replace the data set, after a clean stop"
        )
    existing = store.data_set()
    if is_replaced and existing is not None and existing.lease_left > 0:
        raise ReplicaError(f"the broker at {existing.address} owns the data set {existing.name}: stop it first")
    backend = open_backend()
    positions = Positions(os.path.join(directory, POSITIONS_FILE))
    try:
        if is_replaced:
            store.forget()
        seeded = seed(store, store.create(), backend, positions)
        for failure in backend.commit([], True).values():
            raise failure
        return seeded
    finally:
        positions.close(True)
        backend.close()


def seed(store: IReplicaStore, data_set: DataSet, backend: IBackend, positions: IPositions) -> CopyState:
    """
    Copy a data path that nothing else uses to an empty data set. Returns the state of the data path. When interrupted,
    the data set is not complete, and has to be replaced. BackendError.
    """
    state = new_state(data_set.identity)
    writer = store.claim(state.broker, "", _LEASE_SECONDS)
    if writer is None:
        raise ReplicaError(f"another broker owns the data set {data_set.name}")
    try:
        saved = positions.load()
        for name in backend.topics():
            if not is_ephemeral(name):
                for segments in _unfinished(positions, name, backend.queue(name)):
                    writer.append([(name, segments)])
        writer.save(Checkpoint(wall_shift_ms=saved.wall_shift_ms))
        for topic in saved.topics:
            for checkpoint in snapshot(positions, topic):
                writer.save(checkpoint)
        highest = max((backend.queue(name).end for name in backend.topics()), default=0)
        next_block = max(saved.next_block or random_block(), highest // BLOCK_SIZE + 1 if highest else 0)
        positions.reserve(next_block)
        writer.reserve(next_block + RESERVED_BLOCKS)
        writer.release()
        token, lsn = writer.token, writer.lsn
        return evolve(state, epoch=writer.epoch, token=token, claim=token, lsn=lsn, checkpoint_lsn=lsn)
    finally:
        writer.close()


def _unfinished(positions: IPositions, topic: str, queue: IBackendQueue) -> Iterator[list[Segment]]:
    """Return the segments of a topic that are needed, a part at a time. BackendError."""
    bounds = positions.unfinished(topic)
    below, keep = (0, set()) if bounds is None else (bounds[0], set(bounds[1]))
    start: int = queue.first
    while segments := queue.read(start, _READ_BYTES):
        start = segments[-1].end
        needed = [one for one in segments if one.end > below or not keep.isdisjoint(range(one.first, one.end))]
        if needed:
            yield needed
