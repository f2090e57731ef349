"""The positions of an owner: a checkpoint is saved in the store first, and then in the data path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve
from zope.interface import implementer

from nsqtw.core.checkpoint import (
    Checkpoint,
    CursorState,
    HeldRow,
    PendingRow,
    PublisherId,
    SavedState,
    TopicState,
)
from nsqtw.core.due_order import Key
from nsqtw.core.positions import IPositions
from nsqtw.errors import BackendError, ReplicaError
from nsqtw.interfaces import OperatorLog
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.store import Correction, ForgetDelays, ForgetIds, ForgetPending

Rows = dict[str, list[tuple[int, int]]]
"""The pending rows that were sent to the store, by channel: the first sequence and the number of each run."""


@implementer(IPositions)
class ReplicatedPositions:
    """
    The positions `local` of a data path, with a copy. What is read comes from the data path.

    Theory of operation. A checkpoint is a difference to the one before. After one that failed in the store or in the
    data path, the next one is again a difference to what the data path has; the store may have saved the failed one,
    which is newer and consistent. `_owed` has the pending rows that it has put, by topic and channel. When a checkpoint
    has the state of such a channel, the rows that it does not put again are dropped. All else is sent again by the
    core, or does no harm: the publisher's id of a stored message is true. As long as something is owed, positions.db
    counts as different from the store.

    What a start changes in the data path alone is changed in the store with the next checkpoint (`Correction`).
    """

    def __init__(self, local: IPositions, ownership: Ownership, log: OperatorLog) -> None:
        self._local = local
        self._ownership = ownership
        self._log = log
        self._owed: dict[str, Rows] = {}
        self._corrections: list[Correction] = []
        self._new_ids: dict[str, list[PublisherId]] = {}
        """Ids that a start has found, for the next checkpoint."""
        self._trim_error = ""

    def load(self) -> SavedState:
        """IPositions API. ReplicaError when the positions are damaged: the next start makes them anew."""
        saved: SavedState = self._local.load()
        if saved.invalid or saved.lost:
            self._ownership.forget_checkpoint()
            why = saved.lost_how or next(iter(saved.invalid), "it is lost")
            raise ReplicaError(f"positions.db is damaged, and the next start makes it anew: {why}")
        return saved

    def save(self, checkpoint: Checkpoint) -> None:
        """IPositions API"""
        sent = self._with_what_is_owed(checkpoint)
        self._owe(checkpoint)
        self._ownership.save(sent, self._corrections)
        self._local.save(checkpoint)
        self._corrections.clear()
        self._settle(checkpoint)
        if not (self._owed or self._new_ids):
            self._ownership.saved()
        self._trim(checkpoint.topics)

    def reserve(self, next_block: int) -> None:
        """IPositions API. Called in the reactor thread, too: the store has reserved more than that before."""
        self._ownership.use_blocks(next_block)
        self._local.reserve(next_block)

    def unfinished(self, topic: str) -> tuple[int, Iterable[int]] | None:
        """IPositions API"""
        bounds: tuple[int, Iterable[int]] | None = self._local.unfinished(topic)
        return bounds

    def pending(self, topic: str, channel: str, after: tuple[float, float], limit: int) -> tuple[list[PendingRow], Key]:
        """IPositions API"""
        page: tuple[list[PendingRow], Key] = self._local.pending(topic, channel, after, limit)
        return page

    def count_pending(self, topic: str, channel: str, after: tuple[float, float], until_ms: float, below: float) -> int:
        """IPositions API"""
        return int(self._local.count_pending(topic, channel, after, until_ms, below))

    def pending_row(self, topic: str, channel: str, sequence: int) -> PendingRow | None:
        """IPositions API"""
        row: PendingRow | None = self._local.pending_row(topic, channel, sequence)
        return row

    def held(self, topic: str, channel: str) -> list[HeldRow]:
        """IPositions API"""
        rows: list[HeldRow] = self._local.held(topic, channel)
        return rows

    def publisher_ids(self, topic: str, hashes: Sequence[bytes]) -> list[PublisherId]:
        """IPositions API"""
        ids: list[PublisherId] = self._local.publisher_ids(topic, hashes)
        return ids

    def all_publisher_ids(self, topic: str) -> list[PublisherId]:
        """IPositions API"""
        ids: list[PublisherId] = self._local.all_publisher_ids(topic)
        return ids

    def put_publisher_ids(self, topic: str, ids: Sequence[PublisherId]) -> None:
        """IPositions API"""
        self._ownership.forget_checkpoint()
        self._new_ids.setdefault(topic, []).extend(ids)
        self._local.put_publisher_ids(topic, ids)

    def forget_publisher_ids(self, topic: str, start: int) -> None:
        """IPositions API"""
        self._correct(ForgetIds(topic, start))
        self._local.forget_publisher_ids(topic, start)

    def forget_pending(self, topic: str, channel: str, start: int) -> int:
        """IPositions API"""
        self._correct(ForgetPending(topic, channel, start))
        return int(self._local.forget_pending(topic, channel, start))

    def forget_delays(self) -> None:
        """IPositions API"""
        self._correct(ForgetDelays())
        self._local.forget_delays()

    def close(self, clean: bool) -> None:
        """IPositions API"""
        self._local.close(clean)

    def _correct(self, correction: Correction) -> None:
        """A start changes rows of the data path."""
        self._ownership.forget_checkpoint()
        self._corrections.append(correction)

    def _owe(self, checkpoint: Checkpoint) -> None:
        """The store may save a checkpoint now."""
        for topic in checkpoint.topics:
            owed = self._owed.setdefault(topic.name, {})
            for cursor in topic.cursors:
                rows = owed.setdefault(cursor.name, [])
                rows += [(row.sequence, 1) for row in cursor.pending]
                rows += [(run.first, run.count) for run in cursor.runs]

    def _with_what_is_owed(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint that also drops the rows of failed ones that are finished, and has the new ids."""
        if not (self._owed or self._new_ids):
            return checkpoint
        topics = []
        for topic in checkpoint.topics:
            owed = self._owed.get(topic.name, {})
            cursors = [_without(cursor, owed.get(cursor.name, ())) for cursor in topic.cursors]
            ids = [*topic.publisher_ids, *self._new_ids.get(topic.name, ())]
            topics.append(evolve(topic, cursors=cursors, publisher_ids=ids))
        return evolve(checkpoint, topics=topics)

    def _settle(self, checkpoint: Checkpoint) -> None:
        """The store and the data path have saved a checkpoint: nothing is owed of its channels any more."""
        for name in checkpoint.deleted_topics:
            self._owed.pop(name, None)
            self._new_ids.pop(name, None)
        for name, channel in checkpoint.deleted_channels:
            self._owed.get(name, {}).pop(channel, None)
        for topic in checkpoint.topics:
            self._new_ids.pop(topic.name, None)
            for cursor in topic.cursors:
                self._owed.get(topic.name, {}).pop(cursor.name, None)
        self._owed = {name: owed for name, owed in self._owed.items() if any(owed.values())}

    def _trim(self, topics: Iterable[TopicState]) -> None:
        """Free what is finished in the store. A failure is logged once; the next checkpoint of a topic tries again."""
        error = ""
        for topic in topics:
            try:
                bounds = self.unfinished(topic.name)
                if bounds is not None:
                    self._ownership.trim(topic.name, *bounds)
            except BackendError as failure:
                error = str(failure)
                break
        if error and error != self._trim_error:
            self._log("error", "NSQ: failed to free space in the replica store - {error}", error=error)
        self._trim_error = error


def _without(cursor: CursorState, owed: Sequence[tuple[int, int]]) -> CursorState:
    """Return the state of a cursor that drops the rows in `owed` which it does not put."""
    put = {row.sequence for row in cursor.pending}
    runs = {(run.first, run.count) for run in cursor.runs}
    kept = [range(run.first, run.first + run.count) for run in cursor.runs]
    dropped = [
        sequence
        for first, count in owed
        if (first, count) not in runs
        for sequence in range(first, first + count)
        if sequence not in put and not any(sequence in run for run in kept)
    ]
    return evolve(cursor, dropped_rows=[*cursor.dropped_rows, *dropped]) if dropped else cursor
