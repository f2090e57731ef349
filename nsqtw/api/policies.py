"""
GET and PUT /v2/topic/policy and /v2/channel/policy: the policies of topics and channels.

    GET /v2/channel/policy?topic=orders&channel=archive

    {"topic": "orders", "channel": "archive",
     "settings": {"max_attempts": {"value": 5, "source": "set"},
                  "requeue_delay": {"value": "1s", "source": "[channel.\"orders/*\"]"},
                  "overflow": {"value": "reject", "source": "default"}, ...},
     "set": {"max_attempts": 5},
     "unused": []}

    PUT /v2/channel/policy?topic=orders&channel=archive      {"max_attempts": null, "requeue_delay": "2s"}

`settings` has every setting with its value and where that comes from: the default, a table of the config file, or a
PUT. `set` has what was set by PUT, `unused` a line about each table, or what was set, that is left out because it
contradicts others. The body of a PUT has the settings to set; null removes one. It is answered as GET is, when the
change is saved. The settings are declared in `options.policies`.

A PUT needs `admin` for the channel or topic, and to name a dead-letter topic `admin` for that one, too: the broker
publishes to it, and a redrive finishes messages there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.core.channel import Channel
from nsqtw.core.topic import Topic
from nsqtw.errors import InvalidPolicy
from nsqtw.http.endpoints import (
    CHANNEL,
    CHANNEL_WORDS,
    DRY_RUN,
    JSON,
    NOT_STORED,
    TOPIC,
    Errors,
    Method,
    Section,
    endpoint,
)
from nsqtw.http.names import Parameters, channel_named, topic_name, topic_named
from nsqtw.http.query import parameters, truth
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, Refused, document, failure
from nsqtw.options.policies import (
    DEFAULT,
    ChannelPolicy,
    PolicyClass,
    Resolution,
    TopicPolicy,
    policy_json,
    read_setting,
    resolve_what_fits,
    setting_named,
    settings_of,
    topics_named,
)
from nsqtw.rights import ADMIN

Owner = Topic | Channel
"""An object that has a policy."""

_TOPIC_WORDS = ("INVALID_REQUEST", "MISSING_ARG_TOPIC")
_TOO_BIG = failure(413, "BODY_TOO_BIG")
_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")

_log = Logger()


def _shown_schema(policy: PolicyClass) -> dict[str, Any]:
    names = ("topic", "channel") if policy is ChannelPolicy else ("topic",)
    settings = {
        name: {
            "type": "object",
            "properties": {"value": setting.schema(), "source": {"type": "string"}},
            "required": ["value", "source"],
        }
        for name, setting in settings_of(policy).items()
    }
    properties: dict[str, Any] = {
        **{name: {"type": "string"} for name in names},
        "settings": {"type": "object", "properties": settings, "required": list(settings)},
        "set": {"type": "object", "properties": {n: s.schema() for n, s in settings_of(policy).items()}},
        "unused": {"type": "array", "items": {"type": "string"}},
    }
    return {JSON: {"type": "object", "properties": properties, "required": list(properties)}}


def _change_schema(policy: PolicyClass) -> dict[str, Any]:
    settings = settings_of(policy)
    properties = {name: {**setting.schema(), "nullable": True} for name, setting in settings.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _policy_endpoint(method: str, kind: str, policy: PolicyClass, **fields: Any) -> Callable[[Method], Method]:
    """Declare a method of /v2/`kind`/policy."""
    is_channel = policy is ChannelPolicy
    words = CHANNEL_WORDS if is_channel else _TOPIC_WORDS
    absent: Errors = {404: ["TOPIC_NOT_FOUND", *(["CHANNEL_NOT_FOUND"] if is_channel else [])]}
    errors: Errors = {400: words, **absent}
    if method == "PUT":
        errors = {400: [*words, "INVALID_POLICY", "INVALID_DRY_RUN"], **absent, 413: ["BODY_TOO_BIG"], **NOT_STORED}
    return endpoint(
        method,
        f"/v2/{kind}/policy",
        f"{'Change the' if method == 'PUT' else 'The'} policy of a {kind}",
        required=(TOPIC, CHANNEL) if is_channel else (TOPIC,),
        success=_shown_schema(policy),
        errors=errors,
        **fields,
    )


def _change_endpoint(kind: str, policy: PolicyClass) -> Callable[[Method], Method]:
    return _policy_endpoint(
        "PUT",
        kind,
        policy,
        optional=(DRY_RUN,),
        body="a JSON object with the settings to set; null removes what was set",
        body_schema=_change_schema(policy),
        max_body="max_body_size",
        too_big=_TOO_BIG,
    )


class Policies(Section):
    """Shows and changes the policies of a broker's topics and channels."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump

    @_policy_endpoint("GET", "topic", TopicPolicy)
    def show_topic(self, request: HttpRequest) -> Answer:
        """GET /v2/topic/policy"""
        topic = self._topic(parameters(request.query))
        return document(self._document(topic, topic.given_policy))

    @_change_endpoint("topic", TopicPolicy)
    def change_topic(self, request: HttpRequest) -> Answer | None:
        """PUT /v2/topic/policy"""
        topic = self._topic(parameters(request.query))
        return self._change(request, topic, is_ephemeral=topic.ephemeral)

    @_policy_endpoint("GET", "channel", ChannelPolicy)
    def show_channel(self, request: HttpRequest) -> Answer:
        """GET /v2/channel/policy"""
        channel = channel_named(self._broker, parameters(request.query))
        return document(self._document(channel, channel.given_policy))

    @_change_endpoint("channel", ChannelPolicy)
    def change_channel(self, request: HttpRequest) -> Answer | None:
        """PUT /v2/channel/policy"""
        channel = channel_named(self._broker, parameters(request.query))
        return self._change(request, channel, is_ephemeral=channel.ephemeral or channel.topic.ephemeral)

    # -- inside

    def _topic(self, params: Parameters) -> Topic:
        return topic_named(self._broker, topic_name(params))

    def _change(self, request: HttpRequest, owner: Owner, *, is_ephemeral: bool) -> Answer | None:
        is_dry_run = truth(parameters(request.query), DRY_RUN.name)
        if request.is_overlong:
            return _TOO_BIG
        if self._broker.stopping:
            return EXITING
        try:
            given = _changed(_class_of(owner), owner.given_policy, request.body)
            shown = document(self._document(owner, given, must_fit=True))
            if isinstance(owner, Channel):
                owner.check_policy(given)
        except InvalidPolicy as error:
            raise Refused(failure(400, "INVALID_POLICY", detail=str(error))) from error
        if is_dry_run:
            return shown
        change = partial(self._set, request, owner, given, shown, is_ephemeral=is_ephemeral)
        for name in topics_named(given):
            if name not in topics_named(owner.given_policy):
                return request.require(ADMIN, name, "", change)
        return change()

    def _set(
        self, request: HttpRequest, owner: Owner, given: dict[str, Any], shown: Answer, *, is_ephemeral: bool
    ) -> Answer | None:
        """Change the policy, and answer when that is saved."""
        if owner.exiting:  # deleted while the authorizer was asked
            return _NOT_FOUND
        owner.set_policy(given)
        self._pump.wake()
        if is_ephemeral:
            return shown

        def saved(error: Exception | None) -> None:
            if error is not None:
                _log.error("{target}: {error}", target=request.target.decode("latin-1"), error=str(error))
            request.answer_later(shown if error is None else INTERNAL_ERROR)

        self._broker.checkpointer.ask(saved)
        return None

    def _document(self, owner: Owner, given: Mapping[str, Any], *, must_fit: bool = False) -> dict[str, Any]:
        """Return what GET answers for these settings. InvalidPolicy for those that do not fit, with `must_fit`."""
        resolved = partial(self._resolve, owner)
        resolution = resolved(given) if must_fit else resolve_what_fits(resolved, given)
        policy = _class_of(owner)
        settings = {
            name: {
                "value": setting.json(getattr(resolution.policy, name)),
                "source": resolution.sources.get(name, DEFAULT),
            }
            for name, setting in settings_of(policy).items()
        }
        names = (
            {"topic": owner.name} if isinstance(owner, Topic) else {"topic": owner.topic.name, "channel": owner.name}
        )
        given_json = policy_json(policy, given)
        return {**names, "settings": settings, "set": given_json, "unused": [*resolution.unused]}

    def _resolve(self, owner: Owner, given: Mapping[str, Any]) -> Resolution[Any]:
        options = self._broker.options
        if isinstance(owner, Topic):
            return options.resolve_topic(owner.name, given)
        return options.resolve_channel(owner.topic.name, owner.name, given)


def _class_of(owner: Owner) -> PolicyClass:
    return TopicPolicy if isinstance(owner, Topic) else ChannelPolicy


def _changed(policy: PolicyClass, given: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return the settings `given` with the change that a body describes. InvalidPolicy."""
    try:
        change = json.loads(body)
    except (ValueError, RecursionError):
        change = None
    if not isinstance(change, dict):
        raise InvalidPolicy('the body must be a JSON object of settings, such as {"max_attempts": 5}')
    changed = dict(given)
    for name, raw in change.items():
        if raw is None:
            changed.pop(setting_named(policy, name).name, None)
        else:
            changed[name] = read_setting(policy, name, raw)
    return changed
