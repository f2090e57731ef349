"""The state of brokers with a replica store, as a test says."""

from __future__ import annotations

import attrs

from nsqtw.replication.status import OWNER, STANDBY, ReplicaStatus, StandbyStatus

RUNNING = StandbyStatus(identity="b", address="10.0.0.2:4151", behind_transactions=2, seconds_ago=0.5)
SILENT = StandbyStatus(identity="c", address="10.0.0.9:4151", behind_transactions=9, seconds_ago=40.0)
AN_OWNER = ReplicaStatus(
    role=OWNER,
    data_set="orders",
    identity="a",
    epoch=3,
    owner="10.0.0.1:4150",
    lsn=70,
    lease_left=2.5,
    standbys=(RUNNING, SILENT),
)
A_STANDBY = ReplicaStatus(
    role=STANDBY,
    data_set="orders",
    identity="b",
    epoch=3,
    owner="10.0.0.1:4150",
    lsn=70,
    behind_transactions=2,
    behind_messages=300,
    behind_bytes=4096,
    behind_seconds=1.5,
)


@attrs.define
class FakeReplica:
    """ReplicaControl with a state of the test's. It counts the releases."""

    state: ReplicaStatus
    release_count: int = 0

    def status(self) -> ReplicaStatus:
        """ReplicaControl API"""
        return self.state

    def release(self) -> None:
        """ReplicaControl API"""
        self.release_count += 1
