"""The replica store for tests keeps the contract of replica stores."""

from __future__ import annotations

import pytest

from nsqtw.replication.store import IReplicaStore
from nsqtw.testing.replica_contract import ReplicaStoreContract
from nsqtw.testing.replica_memory import MemoryDatabase, MemoryReplicaStore


class TestMemory(ReplicaStoreContract):
    """A store in memory."""

    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.database = MemoryDatabase()

    def make_store(self, directory: str) -> IReplicaStore:
        return MemoryReplicaStore(self.database, directory)
