"""Drain and reload of single nodes, which only nsqd of nsqtw has."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nsqtw.cluster.answers import JsonObject
from nsqtw.cluster.http import NSQD, ask_all, split
from nsqtw.cluster.model import Node, Partial
from nsqtw.cluster.queries import Queries
from nsqtw.errors import UnknownObject


@attrs.frozen(kw_only=True)
class DrainState:
    """How far a node is with its drain. Counts are of messages; `staying` ones wait for no consumer and remain."""

    node: str
    is_draining: bool
    depth: int
    in_flight: int
    deferred: int
    staying: int
    seconds: float | None = None
    seconds_left: float | None = None


class Maintenance(Queries):
    """Drain and reload of single nodes."""

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
        return _drain_state(node, await self._change(node, "/v2/drain", parameters))

    async def drain_state(self, node: Node) -> DrainState:
        """Return how far a node is. NoServerAnswered, also when it has ended."""
        asked = self.ask(NSQD, self.request_address(node), "/v2/drain", {}, lambda fields: _drain_state(node, fields))
        (state,), _ = split(NSQD, await ask_all([asked]))
        return state

    async def reload(self, node: Node) -> JsonObject:
        """Have a node read options and files again. Return its report. NoServerAnswered."""
        return await self._change(node, "/v2/reload", {})

    async def _change(self, node: Node, path: str, parameters: Mapping[str, str]) -> JsonObject:
        async def ask() -> JsonObject:
            answer = await self.requests.post(NSQD, self.request_address(node), path, parameters)
            return await self.requests.read(answer, lambda fields: fields)

        (fields,), _ = split(NSQD, await ask_all([ask()]))
        return fields


def _drain_state(node: Node, fields: JsonObject) -> DrainState:
    return DrainState(
        node=node.http_address,
        is_draining=bool(fields.get("draining")),
        seconds=fields.get("seconds"),
        seconds_left=fields.get("seconds_left"),
        **{name: int(fields.get(name) or 0) for name in ("depth", "in_flight", "deferred", "staying")},
    )
