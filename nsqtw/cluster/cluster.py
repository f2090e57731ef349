"""
A cluster for nsqadmin and the command line: queries, changes, and what only our nsqd can do.

Messages are looked at without consuming them, channels are moved in their topic's log, and durability, retention and
policies are set. Nodes that cannot do this become warnings; Unsupported when none can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from nsqtw.client.mpub_body import mpub_body
from nsqtw.client.openapi import DESCRIPTION_PATH, has_parameter
from nsqtw.cluster.answers import cancelled_in, drops_in, messages_in, policy_in, redrive_in, seek_in
from nsqtw.cluster.changes import Changes, Done
from nsqtw.cluster.http import NSQD, ask_all, split
from nsqtw.cluster.maintenance import Maintenance
from nsqtw.cluster.model import (
    Cancelled,
    Message,
    Node,
    NodeMessages,
    NodePolicy,
    Partial,
    PolicyAnswer,
    RedriveProgress,
    Seek,
)
from nsqtw.errors import ClusterError, InvalidHeaders, NoServerAnswered, ServerFailed, UnknownObject, Unsupported

V = TypeVar("V")

READY, DEFERRED, IN_FLIGHT = "ready", "deferred", "in_flight"
"""The states of messages that can be looked at."""
MAX_MESSAGES = 1000
"""The messages of a node that one query returns at most."""

_MAX_PAGES = 100
"""Requests that look for one message, each as far as a node searches in one."""
_SEEK = "/v2/channel/seek"
_REDRIVE = "/v2/channel/redrive"
_FINISH = "/v2/channel/finish"
_CANCEL = "/v2/topic/cancel"
_HAS_NO_POLICIES = "has no policies; only nsqd of nsqtw has them"
_IS_NO_BODY = "BAD_BODY"
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
"""The answer of a node that takes a body with headers for one with an impossible count."""
CHANNEL_NOT_FOUND = "CHANNEL_NOT_FOUND"
_ELSEWHERE = (
    *(CHANNEL_NOT_FOUND, "MESSAGE_NOT_FOUND", "MESSAGE_NOT_DEFERRED"),
    *("DEAD_LETTERS_NOT_FOUND", "REDRIVE_NOT_FOUND"),
)
"""Answers of a node that does not have what another node has."""


class Cluster(Changes, Maintenance):
    """
    A cluster. `node` restricts a method to one node, named by its `Node.http_address`; empty for all nodes of the
    topic. Every method raises NoServerAnswered when no server gives a usable answer, and UnknownObject for a node that
    does not have the topic.
    """

    async def messages(
        self,
        topic: str,
        channel: str = "",
        *,
        state: str = READY,
        limit: int = 10,
        node: str = "",
        contains: str = "",
        after: Mapping[str, str] = _NO_PARAMETERS,
    ) -> Partial[tuple[NodeMessages, ...]]:
        """
        Return messages of a channel in a state, or with an empty `channel` those that wait for the topic's channels,
        of each node up to `limit`: those that contain a text, and those after a place of each node. With `after`, nodes
        that have none are not asked. Neither is sent to a node that would ignore it. Unsupported.
        """
        if channel:
            path = "/v2/channel/messages"
            parameters = {"topic": topic, "channel": channel, "state": state, "limit": str(limit)}
        else:
            path, parameters = "/v2/topic/messages", {"topic": topic, "limit": str(limit)}

        async def ask(target: Node) -> NodeMessages:
            if after and target.http_address not in after:
                return NodeMessages(node=target.http_address, messages=(), has_more=False)
            more = {"contains": contains, "after": after.get(target.http_address, "")}
            given = {name: value for name, value in more.items() if value}
            for name in given:
                await self._check_parameter(target, path, name)
            answer = await self.requests.get(NSQD, self.request_address(target), path, {**parameters, **given})
            return await self.requests.read(answer, lambda document: messages_in(document, target.http_address))

        return await self._on_nodes(topic, node, ask)

    async def message(self, topic: str, channel: str, message_id: str, *, node: str) -> Message:
        """Return a message that waits in a channel of a node. UnknownObject, Unsupported."""
        after: Mapping[str, str] = _NO_PARAMETERS
        for _ in range(_MAX_PAGES):
            found = await self.messages(topic, channel, limit=1, node=node, contains=message_id, after=after)
            after = {part.node: part.next for part in found.value if part.next}
            for message in (message for part in found.value for message in part.messages):
                if message.id == message_id:
                    return message
            if not after:
                break
        raise UnknownObject("message", message_id)

    async def seek(
        self, topic: str, channel: str, to: str, *, is_dry_run: bool = False, node: str = ""
    ) -> Partial[tuple[Seek, ...]]:
        """
        Move a channel in its topic's log: to "earliest", "latest", a time or the id of a message. A dry run only
        returns what would happen; it is not sent to a node that would ignore dry_run and move the channel.
        Unsupported.
        """
        parameters = {"topic": topic, "channel": channel, "to": to}
        if is_dry_run:
            parameters["dry_run"] = "true"

        async def ask(target: Node) -> Seek:
            if is_dry_run:
                await self._check_parameter(target, _SEEK, "dry_run")
            answer = await self.requests.post(NSQD, self.request_address(target), _SEEK, parameters)
            return await self.requests.read(answer, lambda document: seek_in(document, target.http_address))

        return await self._on_nodes(topic, node, ask)

    async def finish(self, topic: str, channel: str, message_id: str, *, node: str) -> Partial[tuple[str, ...]]:
        """Finish a message that waits in a channel of a node, which has no consumers there. Unsupported."""
        parameters = {"topic": topic, "channel": channel, "id": message_id}

        async def ask(target: Node) -> str:
            await self.requests.post(NSQD, self.request_address(target), _FINISH, parameters)
            return message_id

        return await self._on_nodes(topic, node, ask)

    async def redrive(
        self, topic: str, channel: str, parameters: Mapping[str, str], *, node: str = ""
    ) -> Partial[tuple[RedriveProgress, ...]]:
        """
        Put the dead letters of a channel back; `parameters` are rate, max, dry_run, stop and id of the nodes.
        Unsupported, also for a node that would ignore id and put all back.
        """

        async def ask(target: Node) -> RedriveProgress:
            if "id" in parameters:
                await self._check_parameter(target, _REDRIVE, "id")
            about = {"topic": topic, "channel": channel, **parameters}
            answer = await self.requests.post(NSQD, self.request_address(target), _REDRIVE, about)
            return await self.requests.read(answer, lambda document: redrive_in(document, target.http_address))

        return await self._on_nodes(topic, node, ask)

    async def redrive_progress(self, topic: str, channel: str) -> Partial[tuple[RedriveProgress, ...]]:
        """Return how far the last redrive of a channel is. Unsupported."""

        async def ask(target: Node) -> RedriveProgress:
            about = {"topic": topic, "channel": channel}
            answer = await self.requests.get(NSQD, self.request_address(target), _REDRIVE, about)
            return await self.requests.read(answer, lambda document: redrive_in(document, target.http_address))

        return await self._on_nodes(topic, "", ask)

    async def cancel(
        self, topic: str, message_id: str = "", *, publisher_id: str = "", channel: str = "", node: str = ""
    ) -> Partial[tuple[Cancelled, ...]]:
        """
        Cancel a deferred message by its id or its publisher's id, in all channels of the topic or in one of them. A
        node without such a message has no result. Unsupported.
        """
        given = {"id": message_id, "publisher_id": publisher_id, "channel": channel}
        parameters = {"topic": topic, **{name: value for name, value in given.items() if value}}

        async def ask(target: Node) -> Cancelled:
            answer = await self.requests.post(NSQD, self.request_address(target), _CANCEL, parameters)
            return await self.requests.read(answer, lambda document: cancelled_in(document, target.http_address))

        return await self._on_nodes(topic, node, ask)

    async def publish(self, topic: str, body: bytes, *, node: str = "") -> str:
        """Publish a message to one node, unless named one that has the topic, else any. Return the node."""
        target = await self._publisher(topic, node)
        outcome = await ask_all(
            [self.requests.post(NSQD, self.request_address(target), "/pub", {"topic": topic}, body)]
        )
        split(NSQD, outcome)
        return target.http_address

    async def publish_with_headers(
        self,
        topic: str,
        messages: Sequence[tuple[bytes, Mapping[str, str]]],
        *,
        node: str = "",
        parameters: Mapping[str, str] = _NO_PARAMETERS,
    ) -> str:
        """
        Publish messages that have headers, all or none, as `publish` does. `parameters` are further ones of /mpub:
        defer, deliver_at, channel. Unsupported for a node that does not know headers, ClusterError for headers
        that cannot be sent.
        """
        try:
            body = mpub_body(messages)
        except InvalidHeaders as error:
            raise ClusterError(str(error)) from error
        target = await self._publisher(topic, node)
        query = {"topic": topic, "binary": "true", "headers": "true", **parameters}
        outcomes = await ask_all([self.requests.post(NSQD, self.request_address(target), "/mpub", query, body)])
        if isinstance(outcomes[0], ServerFailed) and outcomes[0].code == _IS_NO_BODY:
            raise Unsupported(f"{target.http_address} keeps no headers of messages; nsqd of a later nsqtw does")
        split(NSQD, outcomes)
        return target.http_address

    async def set_durability(self, topic: str, durability: str) -> Done:
        """Set the durability of a topic: os, fsync, memory, or "default" for that of the nodes. Unsupported."""
        return await self._set(topic, "/v2/topic/durability", {"class": durability})

    async def set_retention(self, topic: str, *, time: str | None = None, size: str | None = None) -> Done:
        """
        Set what a topic keeps of finished messages: a duration such as `24h`, a number of bytes, each or "default" for
        that of the nodes; None leaves a limit as it is. Unsupported.
        """
        limits = {"time": time, "bytes": size}
        return await self._set(
            topic, "/v2/topic/retention", {name: limit for name, limit in limits.items() if limit is not None}
        )

    async def policy(self, topic: str, channel: str = "") -> Partial[tuple[NodePolicy, ...]]:
        """Return the policy of a topic, or of a channel, on each of its nodes. Unsupported."""
        path, parameters = _policy_of(topic, channel)

        async def ask(target: Node) -> NodePolicy:
            answer = await self.requests.get(NSQD, self.request_address(target), path, parameters)
            return await self.requests.read(answer, lambda document: policy_in(document, target.http_address))

        return await self._on_nodes(topic, "", ask)

    async def set_policy(self, topic: str, channel: str, settings: Mapping[str, Any]) -> Done:
        """Set settings of a policy, each with a JSON value; None removes what was set. Unsupported."""
        put = self._putting_policy(topic, channel, settings)

        async def done(target: Node) -> str:
            return (await put(target)).node

        return await self._on_nodes(topic, "", done)

    async def policy_answers(
        self, topic: str, channel: str, settings: Mapping[str, Any], *, is_dry_run: bool = False
    ) -> Partial[tuple[PolicyAnswer, ...]]:
        """
        Set settings of a policy as `set_policy` does, and return the answer of each node of the topic, also of those
        that did not do it. A dry run changes nothing: the nodes answer whether they would.
        """
        nodes = await self.topic_nodes(topic)
        put = self._putting_policy(topic, channel, settings, is_dry_run=is_dry_run)
        outcomes = await ask_all([put(target) for target in nodes.value])
        answers = [
            _refusal(target.http_address, outcome) if isinstance(outcome, ServerFailed) else outcome
            for target, outcome in zip(nodes.value, outcomes, strict=True)
        ]
        return Partial(tuple(answers), nodes.warnings)

    # -- inside

    def _putting_policy(
        self, topic: str, channel: str, settings: Mapping[str, Any], *, is_dry_run: bool = False
    ) -> Callable[[Node], Coroutine[Any, Any, PolicyAnswer]]:
        """Return what sets settings of a policy on a node. ServerFailed."""
        path, parameters = _policy_of(topic, channel)
        if is_dry_run:
            parameters["dry_run"] = "true"
        body = json.dumps(settings).encode()

        async def put(target: Node) -> PolicyAnswer:
            answer = await self.requests.put(NSQD, self.request_address(target), path, parameters, body)
            drops = await self.requests.read(answer, drops_in) if is_dry_run else 0
            return PolicyAnswer(node=target.http_address, drops=drops)

        return put

    async def _set(self, topic: str, path: str, parameters: Mapping[str, str]) -> Done:
        async def ask(target: Node) -> str:
            await self.requests.post(NSQD, self.request_address(target), path, {"topic": topic, **parameters})
            return target.http_address

        return await self._on_nodes(topic, "", ask)

    async def _check_parameter(self, node: Node, path: str, name: str) -> None:
        """Check that a node knows a parameter. Unsupported, ServerFailed."""
        if not await self.ask(
            NSQD, self.request_address(node), DESCRIPTION_PATH, {}, lambda document: has_parameter(document, path, name)
        ):
            raise Unsupported(f"{node.http_address} does not know {name!r} of {path}; a later version of nsqtw does")

    async def _on_nodes(
        self, topic: str, node: str, ask: Callable[[Node], Coroutine[Any, Any, V]]
    ) -> Partial[tuple[V, ...]]:
        """Return the result of each node of a topic."""
        nodes = await self.topic_nodes(topic)
        targets = [target for target in nodes.value if node in ("", target.http_address)]
        if node and not targets:
            raise UnknownObject("node", node)
        outcomes = await ask_all([ask(target) for target in targets])
        if outcomes and all(isinstance(outcome, Unsupported) for outcome in outcomes):
            raise Unsupported("only nsqd of nsqtw can do this")
        found, errors = split(NSQD, outcomes)
        failed = [str(error) for error in errors if error.code not in _ELSEWHERE]
        return Partial(tuple(found), (*nodes.warnings, *(["\n".join(failed)] if failed else [])))

    async def _publisher(self, topic: str, node: str) -> Node:
        """Return the node to publish to. UnknownObject for one that does not exist."""
        try:
            nodes = (await self.topic_nodes(topic)).value
        except NoServerAnswered:  # also the answer of nsqlookupds that do not know the topic
            nodes = ()
        found = next((target for target in nodes if node in ("", target.http_address)), None)
        if found is None:
            everywhere = (await self.nodes()).value
            found = next((target for target in everywhere if node in ("", target.http_address)), None)
        if found is None:
            raise UnknownObject("node", node or "at all")
        return found


def _policy_of(topic: str, channel: str) -> tuple[str, dict[str, str]]:
    """Return path and parameters of the policy of a topic, or of a channel."""
    if channel:
        return "/v2/channel/policy", {"topic": topic, "channel": channel}
    return "/v2/topic/policy", {"topic": topic}


def _refusal(node: str, failure: ServerFailed) -> PolicyAnswer:
    """Return the answer of a node that failed to set a policy."""
    text = _HAS_NO_POLICIES if isinstance(failure, Unsupported) else failure.detail or failure.code or str(failure)
    return PolicyAnswer(
        node=node,
        refusal=" ".join(text.split()),
        code=failure.code,
        is_outcome_unknown=failure.is_outcome_unknown,
    )
