"""
Saved state of topics and channels: one consistent checkpoint of all of them.

A cut says for each cursor what is *un*finished: `next` (everything below was handed out), the sequences in
flight on their first delivery, and held rows for every other unfinished message below `next`. Everything else
below `next` is finished. `released` and the cursors of a topic belong together and are saved in one
transaction: apart from each other they lose messages.

Only what changed since the last cut is in it; held rows come as differences. Their times are in milliseconds of the
held clock (`core.pending_clock`), because a monotonic clock means nothing to the next process.
"""

from __future__ import annotations

from attrs import define, field, frozen


@define(frozen=True)
class PendingRow:
    """One unfinished message below `next` that is not in its first flight."""

    sequence: int
    attempts: int
    due_ms: int
    """When it may be delivered, held clock; 0: at once."""


@define(frozen=True)
class PendingRun:
    """Held rows of consecutive sequences that were never delivered and are due together."""

    first: int
    count: int
    due_ms: int


@define
class CursorState:
    """
    A channel as it is saved. In a cut `pending` and `runs` are the rows to write; when loaded there are none: they stay
    in positions.db until they are asked for.
    """

    name: str
    paused: bool = False
    next: int = 0
    taken_total: int = 0
    first_deliveries: list[int] = field(factory=list)
    """Sequences in flight on their first delivery, in any order."""
    pending: list[PendingRow] = field(factory=list)
    runs: list[PendingRun] = field(factory=list)
    pending_count: int = 0
    """How many held rows there are in all, with those of this cut."""
    dropped_rows: list[int] = field(factory=list)
    """In a cut: sequences whose held rows are to be removed."""
    emptied: bool = False
    """In a cut: remove all held rows first."""
    replays: int = 0
    """Below this sequence, deferred messages that it comes to have no held row of their own (see `core.cursor`)."""
    forgotten_from: int | None = None
    """In a cut: first remove the held rows from this sequence on."""


@define(frozen=True)
class Waiting:
    """A run of deferred messages above `released`: their delay starts when they are released."""

    first: int
    count: int
    delay_ms: int


@define
class TopicState:
    """A topic as it is saved. In a cut `cursors` are those that changed; when loaded, all there are."""

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
    """How long it was told to keep what is finished while a broker ran; None: what the options say."""
    retention_bytes: int | None = None
    """How many bytes of that, likewise."""
    floor: int | None = None
    """From this sequence on everything is kept; None: nothing is kept because of its age."""
    marks: list[tuple[int, int, int]] = field(factory=list)
    """See `core.retention.Ages.state`."""
    runs: list[tuple[int, int]] = field(factory=list)
    """See `core.sequence_ranges.SequenceRanges.state`."""
    cursors: list[CursorState] = field(factory=list)


@define
class Checkpoint:
    """Everything that changed since the last cut. Deletions come first: a name may be deleted and born again."""

    deleted_topics: list[str] = field(factory=list)
    deleted_channels: list[tuple[str, str]] = field(factory=list)
    topics: list[TopicState] = field(factory=list)
    durable: bool = False
    """Whether it has to be on stable storage when it is saved."""
    wall_shift_ms: int | None = None
    """How far the wall clock is ahead of the held clock; None: as it was."""

    def __bool__(self) -> bool:
        changed = self.deleted_topics or self.deleted_channels or self.topics
        return bool(changed) or self.wall_shift_ms is not None


@define
class SavedState:
    """What `IPositions.load` finds."""

    next_block: int | None = None
    """The lowest block of sequences never handed out; None in a new data path or when that is not known."""
    clean_stop: bool = False
    topics: list[TopicState] = field(factory=list)
    lost: bool = False
    """The saved state was there and could not be used: it was set aside."""
    wall_shift_ms: int = 0
    """How far the wall clock was ahead of the held clock (see `core.pending_clock`)."""
    invalid: list[str] = field(factory=list)
    """What made no sense in it and was left out or mended, a sentence for the operator each."""
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
