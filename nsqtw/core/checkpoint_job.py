"""Job of the storage thread for one checkpoint."""

from __future__ import annotations

from attrs import define, field

from nsqtw.core.checkpoint import Checkpoint, NamedTopic
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendQueue, Waiter


@define
class CheckpointJob:
    """One job for the writer thread, in this order: reserve, save the cut, write names, delete queues, trim queues."""

    checkpoint: Checkpoint
    reserve: int | None
    """Reserve blocks up to this one."""
    names: tuple[NamedTopic, ...] | None = None
    """All that `nsqd.dat` is to name; None: it stays as it is."""
    names_error: BackendError | None = None
    """Why the names could not be written, which fails nothing else; set by who does the job."""
    deleted: list[tuple[str, IBackendQueue]] = field(factory=list)
    trims: list[tuple[str, IBackendQueue, tuple[int, list[int]] | None]] = field(factory=list)
    """Each with its bounds; None: those that follow from the saved cut."""
    waiters: list[Waiter] = field(factory=list)
