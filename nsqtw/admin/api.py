"""The JSON API of the original: queries, and actions on all nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nsqtw.admin.actions import ACTIONS, Performer
from nsqtw.admin.audit import Target
from nsqtw.admin.documents import (
    channel_document,
    counter_document,
    message_of,
    node_document,
    node_stats_json,
    topic_document,
)
from nsqtw.admin.routing import JsonText, argument, plain, route
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import ApiError
from nsqtw.gocompat.json import read_object
from nsqtw.names import is_valid_name

_NO_BODY = "EOF"
_MANY = 500

V = TypeVar("V")


class Api:
    """The routes below /api, and /ping."""

    def __init__(self, cluster: Cluster, performer: Performer) -> None:
        self._cluster = cluster
        self._performer = performer

    # -- queries

    @route("GET", "/ping")
    async def ping(self, request: WebRequest) -> object:
        """Return OK: nsqadmin runs."""
        return plain(request, "OK")

    @route("GET", "/api/topics")
    async def topics(self, request: WebRequest) -> object:
        """Return the names of all topics, or with inactive=true the channels of topics without a node."""
        if argument(request, "inactive") == "true":
            inactive = await self._cluster.inactive_topics()
            topics = {name: list(inactive.value[name]) or None for name in sorted(inactive.value)}
            return {"topics": topics, "message": message_of(inactive.warnings)}
        names = await self._cluster.topics()
        return {"topics": list(names.value) or None, "message": message_of(names.warnings)}

    @route("GET", "/api/topics/<topic>")
    async def topic(self, request: WebRequest, topic: str) -> object:
        """Return a topic over all its nodes."""
        found = await self._cluster.topic(topic)
        return {**topic_document(found.value, _now()), "message": message_of(found.warnings)}

    @route("GET", "/api/topics/<topic>/<channel>")
    async def channel(self, request: WebRequest, topic: str, channel: str) -> object:
        """Return a channel over all its nodes."""
        found = await self._cluster.channel(topic, channel)
        return {**channel_document(found.value, _now(), has_clients=True), "message": message_of(found.warnings)}

    @route("GET", "/api/nodes")
    async def nodes(self, request: WebRequest) -> object:
        found = await self._cluster.nodes()
        nodes = [node_document(node) for node in found.value]
        return {"nodes": nodes or None, "message": message_of(found.warnings)}

    @route("GET", "/api/nodes/<node>")
    async def node(self, request: WebRequest, node: str) -> object:
        """Return a node with its topics, channels and clients."""
        found = await self._cluster.node(node)
        stats, message, now = found.value, message_of(found.warnings), _now()
        return JsonText(await self._made(lambda: node_stats_json(stats, now, message), len(stats.topics)))

    @route("GET", "/api/counter")
    async def counter(self, request: WebRequest) -> object:
        """Return the number of messages of each channel of each node."""
        found = await self._cluster.counter()
        stats = await self._made(lambda: counter_document(found.value), len(found.value))
        return {"stats": stats, "message": message_of(found.warnings)}

    # -- actions

    @route("POST", "/api/topics")
    async def create(self, request: WebRequest) -> object:
        """Create a topic or channel."""
        self._performer.check(request, "create", Target())
        fields = _fields(request, topic="", channel="")
        topic, channel = fields["topic"], fields["channel"]
        if not is_valid_name(topic):
            raise ApiError(400, "INVALID_TOPIC")
        if channel and not is_valid_name(channel):
            raise ApiError(400, "INVALID_CHANNEL")
        kind = "channel" if channel else "topic"
        return await self._act(request, f"create_{kind}", Target(topic=topic, channel=channel))

    @route("POST", "/api/topics/<topic>")
    async def change_topic(self, request: WebRequest, topic: str) -> object:
        """Pause, unpause or empty a topic."""
        target = Target(topic=topic)
        self._performer.check(request, "change_topic", target)
        return await self._act(request, _action(request, "topic"), target)

    @route("POST", "/api/topics/<topic>/<channel>")
    async def change_channel(self, request: WebRequest, topic: str, channel: str) -> object:
        """Pause, unpause or empty a channel."""
        target = Target(topic=topic, channel=channel)
        self._performer.check(request, "change_channel", target)
        return await self._act(request, _action(request, "channel"), target)

    @route("DELETE", "/api/topics/<topic>")
    async def delete_topic(self, request: WebRequest, topic: str) -> object:
        target = Target(topic=topic)
        self._performer.check(request, "delete_topic", target)
        return await self._act(request, "delete_topic", target)

    @route("DELETE", "/api/topics/<topic>/<channel>")
    async def delete_channel(self, request: WebRequest, topic: str, channel: str) -> object:
        target = Target(topic=topic, channel=channel)
        self._performer.check(request, "delete_channel", target)
        return await self._act(request, "delete_channel", target)

    @route("POST", "/api/nodes/<node>")
    async def change_node(self, request: WebRequest, node: str) -> object:
        """Have the owner of a data set stop, so that a standby takes over."""
        target = Target(node=node)
        self._performer.check(request, "change_node", target)
        return await self._act(request, _action(request, "node"), target)

    @route("DELETE", "/api/nodes/<node>")
    async def tombstone(self, request: WebRequest, node: str) -> object:
        """Hide a node from consumers of a topic, and delete the topic there."""
        self._performer.check(request, "tombstone_topic_producer", Target(node=node))
        try:
            topic = _fields(request, topic="")["topic"]
        except ApiError as error:
            raise ApiError(400, "INVALID_BODY") from error
        if not is_valid_name(topic):
            raise ApiError(400, "INVALID_TOPIC")
        return await self._act(request, "tombstone_topic_producer", Target(topic=topic, node=node))

    # -- inside

    async def _made(self, make: Callable[[], V], size: int) -> V:
        """Return what `make` makes of `size` topics or channels: of many in a thread."""
        return make() if size < _MANY else await self._cluster.requests.in_thread(make)

    async def _act(self, request: WebRequest, name: str, target: Target) -> object:
        done = await self._performer.perform(request, name, target)
        return {"message": message_of(done.warnings)}


def _now() -> int:
    """Return the Unix time in seconds."""
    return int(time.time())


def _action(request: WebRequest, kind: str) -> str:
    """Return the name of the action on a topic, channel or node whose word is in the body. ApiError."""
    word: str = _fields(request, action="")["action"]
    action = ACTIONS.get(f"{word}_{kind}")
    if action is None or action.api_word != word:
        raise ApiError(400, "INVALID_ACTION")
    return action.name


def _fields(request: WebRequest, **defaults: str) -> dict[str, Any]:
    """Return the fields of the JSON object in the body of a request. ApiError, in words like the original's."""
    body: bytes = request.content.read()
    if not body.strip():
        raise ApiError(400, _NO_BODY)
    try:
        return read_object(body, defaults)
    except json.JSONDecodeError as error:
        raise ApiError(400, _syntax_error(error)) from error
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"json: cannot unmarshal the body: {error}") from error


def _syntax_error(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].lstrip()
    return f"invalid character {rest[0]!r} looking for beginning of value" if rest else "unexpected EOF"
