"""
Checkpoints: the saved state of topics and channels, consistent in itself.

A checkpoint has for each cursor what is *un*finished: `next` (every message below was delivered), the sequences in
flight on their first delivery, and a pending row for every other unfinished message below `next`. Everything else below
`next` is finished. A pending row says that its message waits, or is in flight again; the checkpoint says which of them
are held, and which have not failed after the last delivery that is allowed. `released` and the cursors of a topic
depend on each other and are saved in one transaction: saved apart they would lose messages.

A checkpoint contains only what changed since the one before; pending rows are saved as differences. Their times are
milliseconds of the pending clock (`core.pending_clock`), because a monotonic clock means nothing to the next process.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from attrs import define, field, frozen


class Phase(Enum):
    """What checkpoints do with a cursor at the moment."""

    BETWEEN = auto()
    """No checkpoint that has changes of it is being saved: what is saved and what is in memory is all that there is."""
    SAVING = auto()
    """Its changes are on their way to positions.db: a look there may find them, or not yet."""


class PendingRow(NamedTuple):
    """One unfinished message below `next` that is not on its first delivery."""

    sequence: int
    attempts: int
    due_ms: int
    """When it may be delivered, in the pending clock; 0: at once."""


class HeldRow(NamedTuple):
    """The further saved state of a message on its way to the dead-letter topic (`core.policy.dead_letters`)."""

    sequence: int
    attempts: int
    """As in its pending row."""
    reason: str
    detail: str
    """Why its last delivery failed, and what the client said about it."""
    due_ms: int
    """When it is delivered again if it turns out to be a dead letter already, in the pending clock."""


@define(frozen=True)
class PendingRun:
    """Pending rows of consecutive sequences that were never delivered and are due together."""

    first: int
    count: int
    due_ms: int


@define(frozen=True)
class PublisherId:
    """The publisher's id of a stored message (see `core.policy.deduplication`)."""

    hash: bytes
    published_ms: int
    """When it was published, in the pending clock."""
    sequence: int


@define
class CursorState:
    """
    The state of a channel. In a checkpoint `pending` and `runs` are the rows to write; when loaded they are empty, and
    the rows stay in positions.db until they are needed.
    """

    name: str
    paused: bool = False
    next: int = 0
    taken_total: int = 0
    first_deliveries: list[int] = field(factory=list)
    """Sequences in flight on their first delivery, in any order."""
    interrupted: list[int] = field(factory=list)
    """
    Sequences of pending rows whose last delivery is the last one that the policy allows, and has not failed: it is
    going on, or a process ended meanwhile. In any order.
    """
    pending: list[PendingRow] = field(factory=list)
    runs: list[PendingRun] = field(factory=list)
    pending_count: int = 0
    """The number of pending rows, with those of this checkpoint."""
    held: list[HeldRow] = field(factory=list)
    """In a checkpoint: those of `pending` that are held. When loaded it is empty: see `IPositions.held`."""
    dropped_rows: list[int] = field(factory=list)
    """In a checkpoint: sequences whose pending rows are to be removed."""
    emptied: bool = False
    """In a checkpoint: remove all pending rows first."""
    replays: int = 0
    """Below this sequence, deferred messages in the log have no pending row of their own (see `core.cursor`)."""
    counted_to: int | None = None
    """From here on, up to `replays`, messages for other channels are counted as unread. None: all are known."""
    positions: list[int] = field(factory=list)
    """With priorities the positions of the classes high, normal and low in the log, of which `next` is the lowest."""
    class_depths: list[int] = field(factory=list)
    """
    With priorities how many messages of each class wait, and the sequence up to which they are counted. Empty: they
    are to be counted.
    """
    forgotten_from: int | None = None
    """In a checkpoint: first remove the pending rows from this sequence on."""
    policy: Mapping[str, Any] = field(factory=dict)
    """The settings of the channel's policy that were made while a broker ran."""


@define(frozen=True)
class Waiting:
    """
    A run of deferred messages above `TopicState.released`: their delay starts when they are released. With a delay of 0
    also one of messages that are for one channel only.
    """

    first: int
    count: int
    delay_ms: int


@define
class TopicState:
    """The state of a topic. In a checkpoint `cursors` are those that changed; when loaded, all of them."""

    name: str
    paused: bool = False
    released: int = 0
    released_total: int = 0
    """Messages ever released to channels."""
    end: int = 0
    """One past the highest sequence counted in `put_total`."""
    put_total: int = 0
    """Messages ever put, up to `end`."""
    dropped: list[tuple[int, int]] = field(factory=list)
    """Ranges of sequences dropped by emptying the topic that some cursor has not passed yet."""
    waiting: list[Waiting] = field(factory=list)
    durability: str = ""
    """The class it was given while a broker ran; "" for the one that the options say."""
    retention_time: float | None = None
    """Retention time in seconds that was set while a broker ran; None: as in the options."""
    retention_bytes: int | None = None
    """Retention in bytes that was set while a broker ran; None: as in the options."""
    floor: int | None = None
    """Every message from this sequence on is kept; None: no message is kept because of its age."""
    marks: list[tuple[int, int, int]] = field(factory=list)
    """See `core.retention.Ages.state`."""
    runs: list[tuple[int, int]] = field(factory=list)
    """See `core.sequence_ranges.SequenceRanges.state`."""
    policy: Mapping[str, Any] = field(factory=dict)
    """The settings of the topic's policy that were made while a broker ran."""
    cursors: list[CursorState] = field(factory=list)
    publisher_ids: list[PublisherId] = field(factory=list)
    """In a checkpoint: ids to write. When loaded it is empty, and the ids stay in positions.db."""
    dedupe_window_ms: int | None = field(default=None, eq=False)
    """In a checkpoint: saved ids that are older may be removed; 0: all; None: none."""


@define
class Checkpoint:
    """
    Everything that changed since the last checkpoint. Deletions are applied first: a deleted name may be created again.
    """

    deleted_topics: list[str] = field(factory=list)
    deleted_channels: list[tuple[str, str]] = field(factory=list)
    topics: list[TopicState] = field(factory=list)
    durable: bool = False
    """Whether the checkpoint must be on stable storage when it is saved."""
    wall_shift_ms: int | None = None
    """Wall clock minus pending clock in milliseconds; None: unchanged."""
    pending_ms: int = field(default=0, eq=False)
    """The pending clock, for removing publishers' ids that are too old."""

    def __bool__(self) -> bool:
        changed = self.deleted_topics or self.deleted_channels or self.topics
        return bool(changed) or self.wall_shift_ms is not None


@define
class SavedState:
    """The state that `IPositions.load` returns."""

    next_block: int | None = None
    """The lowest block of sequences never handed out; None in a new data path or when that is not known."""
    clean_stop: bool = False
    topics: list[TopicState] = field(factory=list)
    lost: bool = False
    """The saved state was there and could not be used: it was set aside."""
    wall_shift_ms: int = 0
    """Wall clock minus pending clock in milliseconds (see `core.pending_clock`)."""
    invalid: list[str] = field(factory=list)
    """A sentence for the operator about each invalid value that was left out or repaired."""
    lost_topics: list[NamedTopic] = field(factory=list)
    """Topics whose state made no sense, and was removed: only their names are known."""
    lost_how: str = field(default="", eq=False)
    """Why it could not be used, and where it is now."""


@frozen
class NamedChannel:
    """A channel as `nsqd.dat` names it."""

    name: str
    paused: bool = False


@frozen
class NamedTopic:
    """A topic as `nsqd.dat` names it: that it exists, with these channels, and nothing of its messages."""

    name: str
    paused: bool = False
    channels: tuple[NamedChannel, ...] = ()
