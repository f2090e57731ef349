"""The interface of the store of cursor positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zope.interface import Interface

from nsqtw.core.checkpoint import Checkpoint, HeldRow, PendingRow, PublisherId, SavedState
from nsqtw.core.due_order import Key


class IPositions(Interface):
    """The stored state of all topics and cursors of a broker. The storage thread writes one `Checkpoint` at a time."""

    def load() -> SavedState:
        """
        Return the last saved state, without the pending rows of its cursors. Called once, first. Must not take longer
        when there are more pending rows. Invalid state is left out or repaired, and reported in `SavedState.invalid`.
        """

    def pending(topic: str, channel: str, after: tuple[float, float], limit: int) -> tuple[list[PendingRow], Key]:
        """
        Return pending rows of a channel as of the last checkpoint, in the order of (due_ms, sequence): the first
        `limit` of those behind `after`; none for an unknown channel. And return where the next ones begin: behind the
        key of the last one as it is saved, or behind BEHIND_ALL when there may be no more. Called in the reactor
        thread, also while a save runs in the other thread, for which it does not wait: it takes a few milliseconds.
        BackendError.
        """

    def count_pending(topic: str, channel: str, after: tuple[float, float], until_ms: float, below: float) -> int:
        """
        Return how many pending rows of a channel are behind `after`, due at `until_ms` and below the sequence `below`;
        infinity leaves none out. Called like `pending`.
        """

    def pending_row(topic: str, channel: str, sequence: int) -> PendingRow | None:
        """Return the pending row of one message; None without one. Called like `pending`."""

    def held(topic: str, channel: str) -> list[HeldRow]:
        """
        Return what else is saved of the messages with pending rows that are held, in the order of their sequences; []
        for an unknown channel. Called at the start. BackendError.
        """

    def publisher_ids(topic: str, hashes: Sequence[bytes]) -> list[PublisherId]:
        """
        Return those of the ids with these hashes that are saved, in any order, perhaps also some that are older than
        the topic's window; [] for an unknown topic. Called like `pending`.
        """

    def all_publisher_ids(topic: str) -> list[PublisherId]:
        """Return all ids of a topic that are saved, for a copy. BackendError."""

    def put_publisher_ids(topic: str, ids: Sequence[PublisherId]) -> None:
        """Save ids of a topic. Called at the start. BackendError."""

    def forget_publisher_ids(topic: str, start: int) -> None:
        """Remove the ids of the messages from the sequence `start` on. Called at the start. BackendError."""

    def forget_pending(topic: str, channel: str, start: int) -> int:
        """
        Remove the pending rows of a channel from the sequence `start` on. Returns how many they were. Called at the
        start, when nothing else uses the store. BackendError.
        """

    def forget_delays() -> None:
        """Let all pending rows be due at once. Called at the start. BackendError."""

    def reserve(next_block: int) -> None:
        """
        Store durably, before it returns, that the blocks below `next_block` are taken, and all that was saved before.
        A lower `next_block` than before changes nothing: two threads may call in any order. BackendError.
        """

    def save(checkpoint: Checkpoint) -> None:
        """
        Make `checkpoint` the saved state, completely or not at all. Publishers' ids that are older than the window of
        their topic are removed by and by. BackendError.
        """

    def unfinished(topic: str) -> tuple[int, Iterable[int]] | None:
        """
        Return, as of the last checkpoint, the lowest `next` of the topic's cursors (`TopicState.released` without any),
        or the retention floor if that is lower, and the unfinished sequences below it, ascending. None for an unknown
        topic. The iterable may be lazy and must be used up before the next call.
        """

    def close(clean: bool) -> None:
        """Close; `clean` records that everything was saved."""
