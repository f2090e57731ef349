"""Changes of single nodes: the release of a data set."""

from __future__ import annotations

import pytest

from nsqtw.cluster.model import Node
from nsqtw.errors import NoServerAnswered
from tests.cluster.answering import answer, ask, server
from tests.replica_control import AN_OWNER


def node_at(address: str) -> Node:
    host, port = address.split(":")
    return Node(broadcast_address=host, hostname="h", tcp_port=1, http_port=int(port), version="1.3.0")


@pytest.mark.parametrize(("force", "target"), [(False, ""), (True, "?force=true")])
def test_a_release_returns_what_the_owner_was(force: bool, target: str) -> None:
    with server(lambda head: answer(AN_OWNER.document())) as (address, heads):
        assert ask(address, "release", node_at(address), force=force) == AN_OWNER
    assert heads[0].startswith(f"POST /v2/replica/release{target} HTTP/1.1")


def test_a_release_without_a_standby_is_refused() -> None:
    refusal = answer({"message": "NO_STANDBY"}, "409 Conflict")
    with server(lambda head: refusal) as (address, _), pytest.raises(NoServerAnswered, match="NO_STANDBY"):
        ask(address, "release", node_at(address))
