"""
What an owner writes to the store, in the order in which the storage thread does it.

Theory of operation. Every durable byte of a broker passes the storage thread: commit batches and checkpoints. An owner
writes each to the store first and to the data path afterwards. So

* if the store fails, nothing has happened, and the publisher is told;
* if the data path fails, the message may be delivered after a takeover, although its publish was refused. This data
  path never gets it, since a log only grows at its end: it is no copy any more, and is copied anew at the next start;
* if it is not known whether the store committed, the publish is refused, too. When the next transaction shows that it
  did, this data path is no copy either.

A sequence is never used twice, and gaps are normal, so nothing of this conflicts with what is stored later. The data
path therefore has nothing that the store does not have, but what was trimmed there, and messages of class memory.

Checkpoints are differences: `replication.positions` says what happens when the store has saved one that the data path
has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.errors import BackendError, NoDataSet, NotOwner, ReplicaError, StoreLost
from nsqtw.replication.lease import Lease
from nsqtw.replication.state_file import StateFile
from nsqtw.replication.store import Correction, IReplicaWriter, Write

RESERVED_BLOCKS = 1 << 13
"""Blocks of sequences that an owner has reserved in the store: the reactor takes them without a call of the store."""


class Ownership:
    """A claimed data set, and the data path that has a copy of it. But for `lease`, used by the storage thread only."""

    def __init__(self, writer: IReplicaWriter, state: StateFile, lease: Lease, now: Callable[[], float]) -> None:
        self.lease = lease
        self._writer = writer
        self._state = state
        self._now = now
        self.failure: ReplicaError | None = None
        """Why the store could not be written to the last time."""
        self.reserved_blocks = 0
        """The blocks below are reserved in the store."""
        self._wanted_blocks = 0
        self.is_complete = False
        """Whether a message that is missing in the data path is damage: not while a start counts what was copied."""
        self._is_closed = False
        self._is_doubtful = False
        """Whether segments that were refused may be in the store."""

    @property
    def epoch(self) -> int:
        """The epoch of the claim."""
        return int(self._writer.epoch)

    @property
    def token(self) -> str:
        """The token of the claim."""
        return str(self._writer.token)

    def append(self, writes: Sequence[Write]) -> None:
        """Store segments in the store. BackendError."""
        before = self._writer.lsn
        is_appended = False
        try:
            with self._calling():
                self._writer.append(writes)
                is_appended = True
        finally:
            self._resolve(before)
            self._is_doubtful = self._is_doubtful or not is_appended

    def appended(self) -> None:
        """The data path has what was appended last."""
        with suppress(BackendError):  # a lower LSN is copied again, which changes nothing
            self._state.record(epoch=self._writer.epoch, token=self._writer.token, lsn=self._writer.lsn)

    def diverged(self) -> None:
        """The data path lacks something of what was appended last: it is copied anew at the next start."""
        self._state.distrust()

    def probe(self) -> None:
        """Find out whether the store can be written to, if it could not the last time. BackendError."""
        if self.failure is not None or self.lease.lost is not None:
            with self._calling():
                self._writer.reserve(0)

    def save(self, checkpoint: Checkpoint, corrections: Sequence[Correction]) -> None:
        """Save a checkpoint in the store, after the corrections. BackendError."""
        before = self._writer.lsn
        with self._calling():
            self._writer.save(checkpoint, corrections)
            self._resolve(before)
            if self._wanted_blocks > self.reserved_blocks - RESERVED_BLOCKS // 2:
                self._reserve(self._wanted_blocks)

    def saved(self) -> None:
        """positions.db has the checkpoint that was saved last, and so has the store."""
        lsn = self._writer.lsn
        with suppress(BackendError):  # then the next start makes positions.db anew
            self._state.record(epoch=self._writer.epoch, token=self._writer.token, lsn=lsn, checkpoint_lsn=lsn)

    def forget_checkpoint(self) -> None:
        """positions.db changes without the store. BackendError."""
        if self._state.state.checkpoint_lsn:
            self._state.forget_checkpoint()

    def damaged(self, why: str) -> None:
        """
        Messages of the data path cannot be read, which the store has. This broker stops being the owner before a
        checkpoint says that they are finished, and copies them again with its next start. From any thread.
        """
        if not self.is_complete:
            return
        with suppress(BackendError):
            self._state.distrust()
        self.lease.lose(ReplicaError(f"the data path is damaged, and is copied again: {why}"))

    def start_blocks(self, next_block: int) -> None:
        """Reserve blocks from `next_block` on, before any is used. BackendError."""
        with self._calling():
            self._reserve(next_block)

    def use_blocks(self, end: int) -> None:
        """The blocks below `end` may be used: more are reserved with the next checkpoint. BackendError if too many."""
        if end > self.reserved_blocks:
            raise ReplicaError("the blocks of sequences that the replica store has reserved are used up")
        self._wanted_blocks = max(self._wanted_blocks, end)

    def trim(self, topic: str, below: int, keep: Iterable[int]) -> None:
        """Free what is not needed any more in the store. BackendError."""
        with self._calling():
            self._writer.trim(topic, below, keep)

    def close(self, *, is_synced: bool, is_released: bool) -> None:
        """
        Close all. `is_synced`: the messages and positions are on stable storage. `is_released`: everything is stored,
        and a standby may take over at once. BackendError.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if is_released and self.lease.lost is None:
                with self._calling():
                    self._writer.release()
        finally:
            self._writer.close()
            self._state.close(is_synced=is_synced)

    def _resolve(self, before: int) -> None:
        """The outcome of all transactions is known if the LSN, which was `before`, has grown."""
        grown = self._writer.lsn - before
        if grown > 1 and self._is_doubtful:
            self.diverged()
        if grown:
            self._is_doubtful = False

    def _reserve(self, next_block: int) -> None:
        self._writer.reserve(next_block + RESERVED_BLOCKS)
        self.reserved_blocks = next_block + RESERVED_BLOCKS

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Note what a call of the store says about the lease."""
        if self.lease.lost is not None:
            raise self.lease.lost
        began = self._now()
        try:
            yield
        except (NotOwner, StoreLost, NoDataSet) as error:
            self.failure = error
            self.lease.lose(error)
            raise
        except ReplicaError as error:
            self.failure = error
            raise
        self.failure = None
        self.lease.renew(began)
