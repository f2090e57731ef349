"""Job of the storage thread for one checkpoint."""

from __future__ import annotations

from attrs import define, field

from nsqtw.core.checkpoint import Checkpoint, NamedTopic
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendQueue, Waiter


@define
class CheckpointJob:
    """
    One job for the storage thread, in this order: reserve blocks, save the checkpoint, write names, delete queues, trim
    queues.
    """

    checkpoint: Checkpoint
    reserve: int | None
    """Reserve blocks up to this one."""
    names: tuple[NamedTopic, ...] | None = None
    """The names for `nsqd.dat`; None: the file stays as it is."""
    names_error: BackendError | None = None
    """Why the names could not be written, which fails nothing else; set by the storage thread."""
    deleted: list[tuple[str, IBackendQueue]] = field(factory=list)
    trims: list[tuple[str, IBackendQueue, tuple[int, list[int]] | None]] = field(factory=list)
    """Queues to trim, each with its bounds; None: the bounds follow from the saved checkpoint."""
    waiters: list[Waiter] = field(factory=list)
