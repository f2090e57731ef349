"""Drain, reload and release of single nodes, which only nsqd of nsqtw has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from nsqtw.cluster.answers import drain_state_in, reload_in, replica_in
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.http import NSQD, ask_all, split
from nsqtw.cluster.model import DrainState, Node, Partial, ReloadReport
from nsqtw.cluster.queries import Queries
from nsqtw.errors import UnknownObject
from nsqtw.replication.status import ReplicaStatus

V = TypeVar("V")


class Maintenance(Queries):
    """Drain, reload and release of single nodes."""

    async def node_named(self, address: str) -> Node:
        """
        Return a node by its `Node.http_address`, or by the address that was given for it. UnknownObject,
        NoServerAnswered. A node that drains leaves the nsqlookupds, and is not found there any more.
        """
        known: Partial[tuple[Node, ...]] = await self.nodes()
        for node in known.value:
            if address in (node.http_address, self.request_address(node)):
                return node
        raise UnknownObject("node", address)

    async def drain(self, node: Node, timeout: str = "") -> DrainState:
        """Have a node drain; `timeout` is a duration, empty for the node's own. NoServerAnswered."""
        parameters = {"timeout": timeout} if timeout else {}
        return await self._change(node, "/v2/drain", parameters, drain_state_in)

    async def drain_state(self, node: Node) -> DrainState:
        """Return how far a node is. NoServerAnswered, also when it has ended."""
        name = node.http_address
        asked = self.ask(NSQD, self.request_address(node), "/v2/drain", {}, lambda found: drain_state_in(found, name))
        (state,), _ = split(NSQD, await ask_all([asked]))
        return state

    async def reload(self, node: Node) -> ReloadReport:
        """Have a node read options and files again. Return its report. NoServerAnswered."""
        return await self._change(node, "/v2/reload", {}, reload_in)

    async def release(self, node: Node, *, force: bool = False) -> ReplicaStatus:
        """
        Have the owner of a data set stop, so that a standby takes over. Return what it was. NoServerAnswered, also when
        no standby runs; `force` stops it all the same.
        """
        parameters = {"force": "true"} if force else {}
        return await self._change(node, "/v2/replica/release", parameters, lambda found, name: replica_in(found))

    async def _change(
        self, node: Node, path: str, parameters: Mapping[str, str], reader: Callable[[JsonObject, str], V]
    ) -> V:
        async def ask() -> V:
            answer = await self.requests.post(NSQD, self.request_address(node), path, parameters)
            return await self.requests.read(answer, lambda found: reader(found, node.http_address))

        (found,), _ = split(NSQD, await ask_all([ask()]))
        return found
