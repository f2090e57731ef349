"""The replica store in PostgreSQL keeps the contract, on a primary with a synchronous standby."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from nsqtw.replication.store import IReplicaStore
from nsqtw.testing.replica_contract import ReplicaStoreContract, row_of
from tests.replication.servers import PostgresPair, opened

pytestmark = pytest.mark.process


class TestPostgres(ReplicaStoreContract):
    """PostgreSQL, with a data set for each directory."""

    @pytest.fixture(autouse=True)
    def _servers(self, servers: PostgresPair) -> None:
        self.servers = servers

    def make_store(self, directory: str) -> IReplicaStore:
        name = sha256(directory.encode()).hexdigest()[:16]
        return opened(Path(directory), self.servers.dsn, 10.0, name)

    def damage(self, store: IReplicaStore, topic: str, first: int) -> None:
        where = f"data_set = '{row_of(store).identity}' AND topic = '{topic}' AND first = {first}"
        self.servers.primary.execute(f"UPDATE nsqtw_segment SET frames = set_byte(frames, 3, 77) WHERE {where}")
