"""The storage of an owner keeps the contracts of the storage of a data path."""

from __future__ import annotations

from nsqtw.backends.positions.store import Positions
from nsqtw.core.positions import IPositions
from nsqtw.interfaces import IBackend
from nsqtw.replication.backend import ReplicatedBackend
from nsqtw.replication.positions import ReplicatedPositions
from nsqtw.testing.contracts import BackendContract, DirectedContract
from nsqtw.testing.positions_contract import PositionsContract
from tests.replication.harness import disk_backend, no_log, ownership


class TestReplicatedDisk(BackendContract):
    """The backend disk with a copy."""

    def make_backend(self, directory: str) -> IBackend:
        return ReplicatedBackend(disk_backend(directory), ownership(directory))


class TestReplicatedDiskHeaders(DirectedContract):
    """Headers and channels in the backend disk with a copy."""

    def make_backend(self, directory: str) -> IBackend:
        return ReplicatedBackend(disk_backend(directory), ownership(directory))


class TestReplicatedPositions(PositionsContract):
    """positions.db with a copy."""

    def make_positions(self, directory: str) -> IPositions:
        owned = ownership(directory)
        owned.start_blocks(1 << 34)
        return ReplicatedPositions(Positions(f"{directory}/positions.db"), owned, no_log)
