"""
Changes of a cluster as nsqadmin makes them: at all nsqlookupds, then on all nodes of a topic.

A result names the servers that made the change. A server that does not make it becomes a warning, also when it is the
only one; a change fails when it is not known which nodes have the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nsqtw.cluster.http import NSQD, NSQLOOKUPD, ask_all
from nsqtw.cluster.model import Node, Partial
from nsqtw.cluster.queries import Queries
from nsqtw.errors import ServerFailed

Done = Partial[tuple[str, ...]]
"""The servers that made a change."""


class Changes(Queries):
    """Changes of topics and channels. `channel` is empty for a change of the topic."""

    async def create(self, topic: str, channel: str = "") -> Done:
        """
        Create a topic or channel at all nsqlookupds, a channel also on the nodes of the topic; without nsqlookupds on
        all nodes. NoServerAnswered.
        """
        steps = _Steps(self)
        program, servers = (NSQLOOKUPD, self.lookupds) if self.lookupds else (NSQD, self.nsqds)
        await steps.change(program, servers, "/topic/create", {"topic": topic})
        if channel:
            await steps.change(program, servers, "/channel/create", _names(topic, channel))
        if channel and self.lookupds:
            await steps.change(NSQD, await steps.nodes(topic), "/channel/create", _names(topic, channel))
        return steps.done()

    async def delete(self, topic: str, channel: str = "") -> Done:
        """Delete a topic or channel at all nsqlookupds and on all nodes of the topic. NoServerAnswered."""
        steps = _Steps(self)
        # First: an nsqlookupd forgets them together with the topic.
        nodes = await steps.nodes(topic)
        path = _path(channel, "delete")
        await steps.change(NSQLOOKUPD, self.lookupds, path, _names(topic, channel))
        await steps.change(NSQD, nodes, path, _names(topic, channel))
        return steps.done()

    async def pause(self, topic: str, channel: str = "") -> Done:
        """Stop the deliveries of a topic or channel. NoServerAnswered."""
        return await self._act(topic, channel, "pause")

    async def unpause(self, topic: str, channel: str = "") -> Done:
        """Resume the deliveries of a topic or channel. NoServerAnswered."""
        return await self._act(topic, channel, "unpause")

    async def empty(self, topic: str, channel: str = "") -> Done:
        """Drop the waiting messages of a topic or channel. NoServerAnswered."""
        return await self._act(topic, channel, "empty")

    async def tombstone(self, topic: str, node: str) -> Done:
        """
        Hide a node from consumers of a topic at all nsqlookupds, and delete the topic on the node. NoServerAnswered
        when the node does not answer, with the tombstone set.
        """
        steps = _Steps(self)
        await steps.change(NSQLOOKUPD, self.lookupds, "/topic/tombstone", {"topic": topic, "node": node})
        found = await self.node_itself(node)
        await steps.change(NSQD, [self.request_address(found)], "/topic/delete", {"topic": topic})
        return steps.done()

    async def _act(self, topic: str, channel: str, action: str) -> Done:
        steps = _Steps(self)
        await steps.change(NSQD, await steps.nodes(topic), _path(channel, action), _names(topic, channel))
        return steps.done()

    async def post(self, program: str, server: str, path: str, parameters: Mapping[str, str]) -> str:
        """Have one server make a change. Return the server. ServerFailed."""
        await self.requests.post(program, server, path, parameters)
        return server


class _Steps:
    """The steps of one change: the servers that made it, and the errors of all steps."""

    def __init__(self, cluster: Changes) -> None:
        self._cluster = cluster
        self._done: list[str] = []
        self._errors: list[str] = []
        self._is_outcome_unknown = False

    async def nodes(self, topic: str) -> list[str]:
        """Return the addresses of the nodes of a topic. NoServerAnswered."""
        found: Partial[tuple[Node, ...]] = await self._cluster.topic_nodes(topic)
        self._errors += found.warnings
        return [self._cluster.request_address(node) for node in found.value]

    async def change(self, program: str, servers: Iterable[str], path: str, parameters: Mapping[str, str]) -> None:
        """Have servers make the change."""
        asked = [self._cluster.post(program, server, path, parameters) for server in servers]
        for outcome in await ask_all(asked):
            if isinstance(outcome, ServerFailed):
                self._errors.append(str(outcome))
                self._is_outcome_unknown |= outcome.is_outcome_unknown
            else:
                self._done.append(outcome)

    def done(self) -> Done:
        """Return the result. All errors are one warning, as in nsqadmin."""
        warnings = ("\n".join(self._errors),) if self._errors else ()
        return Partial(tuple(dict.fromkeys(self._done)), warnings, self._is_outcome_unknown)


def _names(topic: str, channel: str) -> dict[str, str]:
    return {"topic": topic, "channel": channel} if channel else {"topic": topic}


def _path(channel: str, action: str) -> str:
    return f"/{'channel' if channel else 'topic'}/{action}"
