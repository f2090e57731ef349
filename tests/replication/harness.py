"""Owners and standbys with a replica store in memory."""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.interfaces import IBackend
from nsqtw.replication.data_copy import DataCopy
from nsqtw.replication.lease import Lease
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.standby import Standby
from nsqtw.replication.state_file import CopyState, StateFile, new_state, read_state
from nsqtw.testing.replica_memory import MemoryDatabase, MemoryReplicaStore

LEASE = 3.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def no_log(level: str, text: str, /, **fields: object) -> None:
    """OperatorLog API"""


def disk_backend(directory: str) -> IBackend:
    """Open the backend disk."""
    return DiskBackend(directory, 1 << 20, lambda *damage: None)


def ownership(
    directory: str, database: MemoryDatabase | None = None, now: Callable[[], float] = lambda: 100.0
) -> Ownership:
    """Claim the data set of a database, which is made if there is none."""
    store = MemoryReplicaStore(database or MemoryDatabase(now))
    data_set = store.data_set() or store.create()
    state = read_state(directory) or new_state(data_set.identity)
    writer = store.claim(state.broker, "owner:4150", LEASE, forced=True)
    assert writer is not None
    file = StateFile(directory, state)
    file.claimed(epoch=writer.epoch, token=writer.token, lsn=writer.lsn, checkpoint_lsn=0)
    owned = Ownership(writer, file, Lease(LEASE, now), now)
    owned.lease.renew(now())
    return owned


def standby(directory: str, database: MemoryDatabase, state: CopyState | None = None) -> Standby:
    """Return a standby with the backend disk, of the data set of a database."""
    store = MemoryReplicaStore(database)
    data_set = store.data_set()
    assert data_set is not None
    state = state or read_state(directory) or new_state(data_set.identity)
    copy = DataCopy(disk_backend(directory), StateFile(directory, state))
    return Standby(store, copy, address="standby:4150", reported="standby:4151", lease=LEASE, log=no_log)
