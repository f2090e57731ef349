"""The storage backend of an owner: a commit goes to the store first, and then to the backend of the data path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zope.interface import alsoProvides, implementer

from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError
from nsqtw.interfaces import (
    IBackend,
    IBackendQueue,
    ICopyingBackend,
    IDamagedBackend,
    IHeaderBackend,
    IReleasingBackend,
)
from nsqtw.names import is_ephemeral
from nsqtw.replication.ownership import Ownership

_KEPT = (IDamagedBackend, IHeaderBackend, IReleasingBackend)
"""The optional interfaces that the backend of the data path keeps."""


@implementer(IBackend, ICopyingBackend)
class ReplicatedBackend:
    """
    The backend `local` of a data path, with a copy. Its queues are those of `local`: what is read comes from the data
    path. Trims and deletions of queues free the data path; the copy is trimmed and deleted with checkpoints.
    """

    in_thread = True

    def __init__(self, local: IBackend, ownership: Ownership) -> None:
        self.local = local
        self._ownership = ownership
        self._queues: dict[str, IBackendQueue] = {}
        self._topics: dict[IBackendQueue, str] = {}
        alsoProvides(self, *[interface for interface in _KEPT if interface.providedBy(local)])

    def __getattr__(self, name: str) -> Any:
        """Return what belongs to an optional interface."""
        if any(name in interface for interface in _KEPT if interface.providedBy(self)):
            return getattr(self.local, name)
        raise AttributeError(name)

    def topics(self) -> list[str]:
        """IBackend API"""
        names: list[str] = self.local.topics()
        return names

    def queue(self, topic: str) -> IBackendQueue:
        """IBackend API"""
        queue = self.local.queue(topic)
        if topic in self._queues:  # it was deleted since
            self._topics.pop(self._queues[topic], None)
        self._queues[topic], self._topics[queue] = queue, topic
        return queue

    def commit(
        self, writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool
    ) -> dict[Any, BackendError]:
        """
        IBackend API. The copy makes a commit durable, so that of the data path need not be. All of it fails if the copy
        fails.
        """
        failed: dict[Any, BackendError]
        if not writes:
            self._ownership.probe()
            failed = self.local.commit(writes, durable)
            return failed
        named = [(self._topics[queue], segments) for queue, segments in writes]
        copied = [write for write in named if not is_ephemeral(write[0])]
        if not copied:
            failed = self.local.commit(writes, durable)
            return failed
        try:
            self._ownership.append(copied)
        except BackendError as error:
            return dict.fromkeys([queue for queue, _ in writes], error)
        failed = self.local.commit(writes, False)
        if any(not is_ephemeral(self._topics[queue]) for queue in failed):
            self._ownership.diverged()
        else:
            self._ownership.appended()
        return failed

    def close(self) -> None:
        """IBackend API"""
        self.local.close()
