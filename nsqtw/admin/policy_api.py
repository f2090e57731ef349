"""
Policies in the JSON API: those of a topic or channel on each of its nodes, and changes of them. The original has none.

    GET /api/policies/orders/archive

    {"topic": "orders", "channel": "archive",
     "nodes": [{"node": "127.0.0.1:4151", "settings": {"max_attempts": {"value": 5, "source": "set"}, ...},
                "set": {"max_attempts": 5}, "unused": []}],
     "message": ""}

    PUT /api/policies/orders/archive?dry_run=true      {"max_attempts": 5, "priority": null}

    {"nodes": [{"node": "127.0.0.1:4151", "refusal": ""}], "message": ""}

The body of a PUT is that of nsqd's `/v2/channel/policy`: settings, null removes one. They are set on all nodes of the
topic; with `dry_run=true` the nodes only answer whether they would, and `refusal` is why one does not. The answer to a
change has the nodes that made it; `message` names the others.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from nsqtw.admin.actions import Performer, why_not_done
from nsqtw.admin.audit import Target
from nsqtw.admin.documents import message_of
from nsqtw.admin.routing import argument, route
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.cluster import CHANNEL_NOT_FOUND, Cluster
from nsqtw.cluster.model import PolicyAnswer
from nsqtw.errors import ApiError, NoServerAnswered, UnknownObject
from nsqtw.options.settings import topics_named

_DRY_RUN = "dry_run"
_TRUTH = {None: False, "false": False, "true": True}


class PolicyApi:
    """The routes below /api/policies."""

    def __init__(self, cluster: Cluster, performer: Performer) -> None:
        self._cluster = cluster
        self._performer = performer

    @route("GET", "/api/policies/<topic>")
    async def topic(self, request: WebRequest, topic: str) -> object:
        return await self._shown(Target(topic=topic))

    @route("GET", "/api/policies/<topic>/<channel>")
    async def channel(self, request: WebRequest, topic: str, channel: str) -> object:
        return await self._shown(Target(topic=topic, channel=channel))

    @route("PUT", "/api/policies/<topic>")
    async def change_topic(self, request: WebRequest, topic: str) -> object:
        return await self._change(request, "set_policy_topic", Target(topic=topic))

    @route("PUT", "/api/policies/<topic>/<channel>")
    async def change_channel(self, request: WebRequest, topic: str, channel: str) -> object:
        return await self._change(request, "set_policy_channel", Target(topic=topic, channel=channel))

    # -- inside

    async def _shown(self, target: Target) -> object:
        try:
            found = await self._cluster.policy(target.topic, target.channel)
        except NoServerAnswered as error:
            codes = {getattr(one, "code", "") for one in error.errors}
            if codes == {CHANNEL_NOT_FOUND}:
                raise UnknownObject("channel", target.channel) from error
            raise error if codes else UnknownObject("topic", target.topic) from error
        nodes = [
            {"node": node.node, "settings": node.settings, "set": node.given, "unused": list(node.unused)}
            for node in found.value
        ]
        names = {name: value for name, value in attrs.asdict(target).items() if value}
        return {**names, "nodes": nodes, "message": message_of(found.warnings)}

    async def _change(self, request: WebRequest, name: str, target: Target) -> object:
        self._performer.check(request, name, target)
        settings = _settings(request)
        if _is_dry_run(request):
            for named in topics_named(settings):
                self._performer.check(request, name, Target(topic=named))
            answers = await self._cluster.policy_answers(target.topic, target.channel, settings, is_dry_run=True)
            return {"nodes": [_row(answer) for answer in answers.value], "message": message_of(answers.warnings)}
        done = await self._performer.perform(request, name, target, {"settings": settings})
        if not done.value:
            failed = ApiError(502, f"UPSTREAM_ERROR: {why_not_done(done)}")
            raise failed if done.warnings else UnknownObject("topic", target.topic)
        return {"nodes": [_row(answer) for answer in done.value], "message": message_of(done.warnings)}


def _row(answer: PolicyAnswer) -> dict[str, str]:
    return {"node": answer.node, "refusal": answer.refusal}


def _settings(request: WebRequest) -> dict[str, Any]:
    """Return the settings in the body of a request. ApiError."""
    try:
        settings = json.loads(request.content.read())
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "INVALID_BODY") from error
    if not isinstance(settings, dict) or not settings:
        raise ApiError(400, "INVALID_BODY")
    return settings


def _is_dry_run(request: WebRequest) -> bool:
    text = argument(request, _DRY_RUN)
    if text not in _TRUTH:
        raise ApiError(400, f"INVALID_{_DRY_RUN.upper()}")
    return _TRUTH[text]
