"""GET /v2/replica, POST /v2/replica/release, and the replica store in /stats and /metrics."""

from __future__ import annotations

import attrs
import pytest

from nsqtw.replication.status import ReplicaStatus
from tests.http.broker_fixture import Web
from tests.replica_control import A_STANDBY, AN_OWNER, SILENT, FakeReplica


def with_replica(state: ReplicaStatus) -> tuple[Web, FakeReplica]:
    """Return a broker with a replica store in a state."""
    web, replica = Web(), FakeReplica(state)
    web.replicate(replica)
    return web, replica


def test_the_state_is_a_document() -> None:
    web, _ = with_replica(AN_OWNER)
    document = web.get("/v2/replica").json
    assert document == {**AN_OWNER.document(), "standbys": [attrs.asdict(standby) for standby in AN_OWNER.standbys]}


def test_stats_have_the_same_document() -> None:
    web, _ = with_replica(A_STANDBY)
    stats = web.get("/stats?format=json").json
    assert stats["replica"] == web.get("/v2/replica").json
    assert list(stats)[:5] == ["version", "health", "start_time", "topics", "replica"]


def test_stats_have_nothing_of_it_without_a_replica_store() -> None:
    web = Web()
    assert "replica" not in web.get("/stats?format=json").json
    assert b"Replica" not in web.get("/stats").body
    assert web.get("/v2/replica").outcome == (404, "NO_REPLICA_STORE")
    assert web.post("/v2/replica/release").outcome == (404, "NO_REPLICA_STORE")


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (AN_OWNER, "Replica: owner of orders, epoch 3, standbys that run: 1"),
        (A_STANDBY, "Replica: standby of orders, epoch 3, transactions behind: 2"),
        (attrs.evolve(A_STANDBY, data_set="", epoch=0), "Replica: standby of -, epoch 0, transactions behind: 2"),
    ],
)
def test_the_text_has_a_line(state: ReplicaStatus, line: str) -> None:
    web, _ = with_replica(state)
    lines = web.get("/stats").body.decode().splitlines()
    assert lines[lines.index("Health: OK") + 1 :][:3] == [line, "", "Memory:"]


@pytest.mark.parametrize(
    ("state", "query", "outcome", "releases"),
    [
        (AN_OWNER, "", 200, 1),
        (attrs.evolve(AN_OWNER, standbys=(SILENT,)), "", (409, "NO_STANDBY"), 0),
        (attrs.evolve(AN_OWNER, standbys=(SILENT,)), "?force=true", 200, 1),
        (A_STANDBY, "?force=true", (409, "NOT_OWNER"), 0),
    ],
)
def test_a_release(state: ReplicaStatus, query: str, outcome: int | tuple[int, str], releases: int) -> None:
    """Only an owner that a standby could follow is stopped."""
    web, replica = with_replica(state)
    reply = web.post(f"/v2/replica/release{query}")
    assert (reply.status if reply.status == 200 else reply.outcome) == outcome
    assert replica.release_count == releases


def test_the_metrics() -> None:
    web, _ = with_replica(attrs.evolve(AN_OWNER, error="the store is away"))
    text = web.get("/metrics").body.decode()
    assert [line for line in text.splitlines() if line.startswith("nsq_replica_")] == [
        'nsq_replica_role{data_set="orders",role="owner"} 1.0',
        'nsq_replica_role{data_set="orders",role="standby"} 0.0',
        "nsq_replica_lease_seconds 2.5",
        "nsq_replica_epoch 3.0",
        "nsq_replica_behind_messages 0.0",
        "nsq_replica_behind_bytes 0.0",
        "nsq_replica_behind_seconds 0.0",
        "nsq_replica_standbys 1.0",
        "nsq_replica_store_up 0.0",
    ]
