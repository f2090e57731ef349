"""The positions of an owner: a checkpoint is saved in the store first, and then in the data path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from nsqtw.errors import BackendError
from nsqtw.interfaces import OperatorLog
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.snapshot import snapshot, without_rows


@implementer(IPositions)
class ReplicatedPositions:
    """
    The positions `local` of a data path, with a copy. What is read comes from the data path.

    Theory of operation. `_unequal` are the topics whose saved state may not be the same in both: those of a checkpoint
    that failed in one of them, and those whose rows a start has changed. The next checkpoint replaces them in the store
    by what the data path has, in the same transaction. The states of topics and cursors are kept in memory for that,
    because a checkpoint has only those that changed; rows are read.
    """

    def __init__(self, local: IPositions, ownership: Ownership, log: OperatorLog) -> None:
        self._local = local
        self._ownership = ownership
        self._log = log
        self._topics: dict[str, TopicState] = {}
        """The saved states in the data path, without cursors."""
        self._cursors: dict[str, dict[str, CursorState]] = {}
        """The saved states of the cursors of each topic."""
        self._unequal: dict[str, None] = {}
        self._trim_error = ""

    def load(self) -> SavedState:
        """IPositions API"""
        saved: SavedState = self._local.load()
        for topic in saved.topics:
            self._remember(topic)
        if saved.invalid or saved.lost:
            names = [topic.name for topic in saved.topics] + [topic.name for topic in saved.lost_topics]
            self._unequal.update(dict.fromkeys(names))
        return saved

    def save(self, checkpoint: Checkpoint) -> None:
        """IPositions API"""
        for name in checkpoint.deleted_topics:
            self._unequal.pop(name, None)
        replaced = list(self._unequal)
        self._unequal.update(dict.fromkeys(topic.name for topic in checkpoint.topics))
        self._unequal.update(dict.fromkeys(topic for topic, _ in checkpoint.deleted_channels))
        self._ownership.save(self._with_states_of(replaced, checkpoint), replaced)
        self._local.save(checkpoint)
        self._unequal.clear()
        self._follow(checkpoint)
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
        self._differ(topic)
        self._local.put_publisher_ids(topic, ids)

    def forget_publisher_ids(self, topic: str, start: int) -> None:
        """IPositions API"""
        self._differ(topic)
        self._local.forget_publisher_ids(topic, start)

    def forget_pending(self, topic: str, channel: str, start: int) -> int:
        """IPositions API"""
        self._differ(topic)
        return int(self._local.forget_pending(topic, channel, start))

    def forget_delays(self) -> None:
        """IPositions API"""
        for topic in self._topics:
            self._differ(topic)
        self._local.forget_delays()

    def close(self, clean: bool) -> None:
        """IPositions API"""
        self._local.close(clean)

    def _differ(self, topic: str) -> None:
        """A start changes rows of a topic in the data path alone."""
        self._ownership.forget_checkpoint()
        self._unequal[topic] = None

    def _with_states_of(self, topics: Iterable[str], checkpoint: Checkpoint) -> Iterator[Checkpoint]:
        """Return a checkpoint behind those that save what the data path has of `topics`."""
        for name in topics:
            if name in self._topics:
                cursors = list(self._cursors[name].values())
                yield from snapshot(self._local, evolve(self._topics[name], cursors=cursors))
        yield checkpoint

    def _follow(self, checkpoint: Checkpoint) -> None:
        """The data path has saved a checkpoint."""
        for name in checkpoint.deleted_topics:
            self._topics.pop(name, None)
            self._cursors.pop(name, None)
        for name, channel in checkpoint.deleted_channels:
            self._cursors.get(name, {}).pop(channel, None)
        for topic in checkpoint.topics:
            self._remember(topic)

    def _remember(self, topic: TopicState) -> None:
        self._topics[topic.name] = evolve(topic, cursors=[], publisher_ids=[])
        cursors = self._cursors.setdefault(topic.name, {})
        cursors.update({cursor.name: without_rows(cursor) for cursor in topic.cursors})

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
