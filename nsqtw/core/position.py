"""
Position of a channel in the log of its topic: the interface of the two kinds, and their common parts.

A durable channel has a `cursor.Cursor`, an ephemeral one an `ephemeral_queue.EphemeralQueue`. A channel asks either
for the next unread run (`peek`, `advance`) and for messages that are due for another delivery (`next_redelivery`), and
reports the outcome of those it was given.
"""

# mypyc: compiled

from __future__ import annotations

from typing import NamedTuple, Protocol

from nsqtw.core.checkpoint import HeldRow
from nsqtw.core.in_flight import Delivery
from nsqtw.core.place import Place
from nsqtw.core.segment import Segment, Span


class Redelivery(NamedTuple):
    """
    A message to be delivered on its own. `attempts` counts the deliveries so far. `is_interrupted`: the last one did
    not fail, but the process ended.
    """

    sequence: int
    attempts: int
    segment: Segment
    at: int
    is_interrupted: bool = False


class Position(Protocol):
    """A channel's position in the log and its unfinished messages that are not on their first delivery."""

    def places(self) -> dict[Place, int]:
        """Return how many messages are in each place that the position has."""

    @property
    def depth(self) -> int:
        """Messages that could be delivered now."""

    @property
    def available(self) -> int:
        """
        At least 1 while something may be there to deliver, else 0; `depth` where that is more. Delivery goes by this:
        it depends on sequences, while `depth` is counted.
        """

    @property
    def backend_depth(self) -> int:
        """How many of them nsqd would have on disk."""

    @property
    def deferred_count(self) -> int:
        """Messages that wait for their time."""

    @property
    def dropped_count(self) -> int:
        """Messages that an ephemeral channel had no room for, or that a bound of a durable one dropped."""

    @property
    def has_rows(self) -> bool:
        """Whether `finish` must be called for a finished redelivery."""

    @property
    def is_being_saved(self) -> bool:
        """
        Whether all deliverable messages are on their way to positions.db: `on_timer` finds them when they are there.
        """

    def release(self, segments: list[Segment], now: float) -> float | None:
        """
        The topic has released these segments. Returns when the first deferred message of them is due, if there is one.
        """

    def next_span(self, now: float) -> Span | None:
        """
        Move past gaps, dropped and deferred messages, and return the unread messages that follow, within one segment.

        The messages themselves stay unread until `advance`. None if nothing is left. BackendError.
        """

    def advance(self, count: int) -> None:
        """Mark the first `count` messages of the last `next_span` as read."""

    def pass_next(self, count: int) -> None:
        """Mark the first `count` messages of the last `next_span` as read and finished: they are not delivered."""

    def next_redelivery(self) -> Redelivery | None:
        """Take the requeued message whose turn has come, if any. BackendError."""

    def redelivered(self, redelivery: Redelivery) -> None:
        """It is on its way again."""

    def finish(self, sequence: int) -> None:
        """A redelivered message is finished."""

    def take_out(self, sequence: int, attempts: int, place: Place, held: HeldRow | None = None) -> None:
        """
        Move a message to a place outside of the position, until `finish`, `requeue` or `defer`. `held`: a restart keeps
        it held.
        """

    def requeue(self, message_id: bytes, delivery: Delivery) -> None:
        """Deliver a message that was in flight again."""

    def defer(self, message_id: bytes, delivery: Delivery, due: float) -> None:
        """Deliver a message that was in flight again, not before `due`."""

    def cancel(self, sequence: int, now: float) -> bool:
        """
        Remove a deferred message that was never delivered and is not due. Returns whether there was one. BackendError.
        """

    def on_timer(self, now: float) -> float | None:
        """Make ready what was deferred until now; when to look next."""

    def next_due(self, now: float) -> float | None:
        """Return when the next deferred message is due, or may be; None without one."""

    def detach(self) -> None:
        """The channel has ended: leave no reference to it."""

    def empty(self) -> None:
        """Forget everything up to what is released."""
