"""
The interface of a replica store: a copy of the durable state of one broker, kept by a database that outlives machines.

Theory of operation. A *data set* is the copy: its segments, its checkpoints, and one row that says which broker owns
it. Only the owner writes. Each write is one transaction that first changes that row, on the condition that its *epoch*
is the one that the owner claimed: so a broker that lost the data set cannot write, whatever it believes and whatever
its clock says. A claim raises the epoch. It succeeds when the owner has released the data set, or has not renewed its
*lease* in time by the clock of the store.

Each write of messages or of a checkpoint has a number, the *LSN*, one above the one before. A broker records the LSN
up to which its data path has the copy. So a standby asks for what is above, and a broker detects a store that has lost
transactions: by a lower LSN, or by a next epoch that began below its own.

Methods block, for at most the timeout that the store was opened with. An object is used by one thread at a time, with a
connection of its own, which it opens again after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from attrs import frozen
from zope.interface import Attribute, Interface

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.core.segment import Segment

Write = tuple[str, Sequence[Segment]]
"""Segments for one topic, ascending."""

FORMAT = 1
"""The version of what is stored. A store with a higher one is refused."""


@frozen
class DataSet:
    """The row of a data set, as of one moment of the store's clock."""

    name: str
    identity: str
    """Made at random when the data set was created: another one of the same name has another identity."""
    epoch: int
    """The number of claims; 0 before the first one."""
    owner: str
    """The identity of the broker that claimed it last; "" before."""
    address: str
    """Where its clients reach it, HOST:PORT."""
    is_released: bool
    """The owner gave the data set up: a claim need not wait for the end of the lease."""
    lease_left: float
    """Seconds until a claim of another broker succeeds; 0 if it succeeds now."""
    lease: float
    """The lease of the owner in seconds."""
    renewed: str
    """When the lease was renewed last, in the words of the store: two of them are the same or not."""
    token: str
    """Made at random with the last claim; "" before the first one. Two claims of one epoch have different ones."""
    lsn: int
    """Of the last transaction."""
    checkpoint_lsn: int
    """Of the last checkpoint; 0 before the first one."""
    requested_by: str
    """The standby for which the owner is asked to release the data set; "" if it is not asked."""


@frozen
class Claim:
    """A claim of a data set, by its epoch."""

    token: str
    began: int
    """The LSN that the data set had."""


@frozen
class ForgetPending:
    """Remove the pending rows of a channel from the sequence `start` on."""

    topic: str
    channel: str
    start: int


@frozen
class ForgetIds:
    """Remove the publishers' ids of a topic's messages from the sequence `start` on."""

    topic: str
    start: int


@frozen
class ForgetDelays:
    """Let all pending rows be due at once."""


Correction = ForgetPending | ForgetIds | ForgetDelays
"""A change of saved rows that a start makes, and no checkpoint has."""

OnDamage = Callable[[str, int, int, str], None]
"""`on_damage(topic, first, last, why)`: the messages `first` to `last` in the store cannot be read."""


class Behind(NamedTuple):
    """What a standby has not copied yet."""

    messages: int
    bytes: int
    """Of frames and headers."""


@frozen
class StandbyReport:
    """What a standby last told the store about itself."""

    identity: str
    address: str
    """Where its HTTP is reached, HOST:PORT."""
    lsn: int
    """It has a copy of everything up to here."""
    seconds_ago: float


class StoredSegment(NamedTuple):
    """A segment in the store."""

    lsn: int
    topic: str
    segment: Segment


@frozen
class Finding:
    """What `nsqtw doctor` is told about a store: a name, whether it is good, and one line."""

    name: str
    is_good: bool
    text: str


@frozen
class Size:
    """The copy of a data set, as `nsqtw replicate status` shows it."""

    segments: int
    messages: int
    bytes: int
    pending_rows: int


class IReplicaStore(Interface):
    """One data set in a store. Every method but `close` may raise ReplicaError."""

    def data_set() -> DataSet | None:
        """Return the row; None when there is no such data set, or the store was never prepared."""

    def create() -> DataSet:
        """Prepare the store if that was not done, and create the data set, which belongs to nobody. DataSetExists."""

    def forget() -> None:
        """Remove the data set with everything in it, whoever owns it. Without one, nothing happens."""

    def claim(
        owner: str,
        address: str,
        lease: float,
        *,
        token: str = "",
        unchanged: DataSet | None = None,
        forced: bool = False,
    ) -> IReplicaWriter | None:
        """
        Become the owner, with a lease of `lease` seconds: if there is none, if it released the data set, if its lease
        is over by the clock of the store, if `token` is that of the last claim (the owner itself comes back), if the
        row still has the epoch, the LSN and the `DataSet.renewed` of `unchanged` (a standby has waited for a lease by
        its own clock), or if `forced`. Return the writer, which has a connection of its own; None if another broker
        owns the data set. The broker that owned it cannot write any more. NoDataSet.
        """

    def renew(epoch: int) -> DataSet:
        """Renew the lease of the owner that claimed this epoch. Return the row. NotOwner."""

    def request(standby: str) -> None:
        """Ask the owner to release the data set, for the standby of this identity; "" takes that back. NoDataSet."""

    def claim_of(epoch: int) -> Claim | None:
        """Return the claim with which an epoch began; None if there was none."""

    def report(standby: str, address: str, lsn: int) -> None:
        """Record that a standby has a copy up to `lsn`."""

    def standbys() -> Sequence[StandbyReport]:
        """Return what the standbys of the last minute reported."""

    def segments(after: int, limit: int, on_damage: OnDamage | None = None) -> Sequence[StoredSegment]:
        """
        Return the segments of the transactions above the LSN `after`, in the order of their LSN and, within one, of
        topic and sequence: those of the next transaction, and of more as long as all have less than `limit` bytes. A
        transaction is never returned in part. [] if there are none. NoDataSet. A damaged segment is left out and
        reported with `on_damage`; without it, it is a ReplicaError.
        """

    def behind(after: int) -> Behind:
        """Return how much `segments` would return in all."""

    def kept(topics: Sequence[str]) -> Mapping[str, int | None]:
        """
        Return for each topic of the data set that is in `topics` the lowest sequence that is kept in the store; None if
        nothing is. A topic that is missing from the result was deleted.
        """

    def ends(topics: Sequence[str]) -> Mapping[str, int]:
        """Return for each of the topics of which something is kept one past its highest sequence."""

    def spans(topic: str) -> Iterator[tuple[int, int]]:
        """Return the segments of a topic that are kept, ascending: the first sequence and one past the last."""

    def checkpoints() -> Iterator[Checkpoint]:
        """
        Return the saved state, as checkpoints of limited size that together save it: a topic and its channels in each
        one with rows of theirs. The first one has `Checkpoint.wall_shift_ms`. Called by the owner before it writes.
        """

    def next_block() -> int | None:
        """Return the lowest block of sequences that was never reserved; None if none was."""

    def size() -> Size:
        """Return how large the copy is. May take long."""

    def health() -> Sequence[Finding]:
        """Look at what an operator may have set up wrong, such as a database without a synchronous standby."""

    def close() -> None:
        """Close the connection. Nothing is called afterwards."""


class IReplicaWriter(Interface):
    """
    The right to write to a data set, which a claim returned. After any error but NotOwner and StoreLost the transaction
    may or may not have been committed; the next call finds out. After those two every call raises them again.
    """

    epoch = Attribute("the epoch that was claimed")
    token = Attribute("the token of the claim")
    lsn = Attribute("the LSN of the last transaction that is known to be committed")

    def append(writes: Sequence[Write]) -> None:
        """
        Store segments of several topics in one transaction, which survives the loss of a machine as the store is set
        up. Segments that an earlier call of unknown outcome stored are not among those of a later one. NotOwner,
        StoreLost, ReplicaError; BackendFull when the store has no space.
        """

    def save(checkpoint: Checkpoint, corrections: Sequence[Correction] = ()) -> None:
        """
        Make the corrections, in order, and save a checkpoint, in one transaction. A topic that it deletes loses its
        segments, too. Sets `DataSet.checkpoint_lsn`. As `append`; takes longer than the timeout for many rows.
        """

    def reserve(next_block: int) -> None:
        """Store that the blocks of sequences below `next_block` are taken. A lower number changes nothing."""

    def trim(topic: str, below: int, keep: Iterable[int]) -> None:
        """
        Of the sequences below `below` only those in `keep`, ascending, are still needed. Removes segments that have
        none of them; may remove fewer.
        """

    def release() -> None:
        """Give the data set up. Nothing is written afterwards."""

    def close() -> None:
        """Close the connection."""
