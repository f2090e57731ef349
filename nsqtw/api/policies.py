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

A PUT that sets something creates a topic or channel that does not exist, as a publish creates its topic.

`settings` has every setting with its value and where that comes from: the default, a table of the config file, or a
PUT. `set` has what was set by PUT, `unused` a line about each table, or what was set, that is left out because it
contradicts others. The body of a PUT has the settings to set; null removes one. It is answered as GET is, when the
change is saved. The settings are declared in `options.settings`.

A PUT needs `admin` for the channel or topic, and to name a dead-letter topic `admin` for that one, too: the broker
publishes to it, and a redrive finishes messages there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from nsqtw.api.changes import perform_change
from nsqtw.api.context import ApiContext
from nsqtw.core.channel import Channel
from nsqtw.core.channel_policy import check_channel_policy
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, InvalidPolicy
from nsqtw.http.endpoints import (
    CHANNEL,
    CHANNEL_WORDS,
    DRY_RUN,
    FAILED,
    JSON,
    TOPIC,
    Errors,
    Method,
    Section,
    endpoint,
)
from nsqtw.http.names import channel_named, names, topic_name, topic_named, valid_topic_name
from nsqtw.http.query import parameters, truth
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, Refused, document, failure
from nsqtw.names import is_ephemeral
from nsqtw.options.resolution import DEFAULT, NOTHING_GIVEN, Resolution, resolve_what_fits
from nsqtw.options.settings import (
    ChannelPolicy,
    PolicyClass,
    TopicPolicy,
    policy_json,
    read_setting,
    setting_named,
    settings_of,
    topics_named,
)
from nsqtw.rights import ADMIN

Owner = Topic | Channel
"""An object that has a policy."""


@attrs.frozen
class Target:
    """The topic or channel that a request names; `owner` is None where it does not exist."""

    topic: str
    channel: str | None
    owner: Owner | None

    @property
    def policy_class(self) -> PolicyClass:
        return TopicPolicy if self.channel is None else ChannelPolicy

    @property
    def given_policy(self) -> Mapping[str, Any]:
        return NOTHING_GIVEN if self.owner is None else self.owner.given_policy

    @property
    def is_ephemeral(self) -> bool:
        return is_ephemeral(self.topic) or (self.channel is not None and is_ephemeral(self.channel))

    @property
    def names(self) -> dict[str, str]:
        """The members of a document that name it."""
        return {"topic": self.topic} if self.channel is None else {"topic": self.topic, "channel": self.channel}


_TOPIC_WORDS = ("INVALID_REQUEST", "MISSING_ARG_TOPIC")
_TOO_BIG = failure(413, "BODY_TOO_BIG")
_NO_TOPIC, _NO_CHANNEL = (failure(404, f"{kind}_NOT_FOUND") for kind in ("TOPIC", "CHANNEL"))


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
    required = list(properties)
    if policy is ChannelPolicy:
        properties["drops"] = {
            "type": "integer",
            "nullable": True,
            "description": "of a dry run: messages that the bounds would drop at once; null when that is not known",
        }
    return {JSON: {"type": "object", "properties": properties, "required": required}}


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
        errors = {
            400: [*words, *([] if is_channel else ["INVALID_TOPIC"]), "INVALID_POLICY", "INVALID_DRY_RUN"],
            **absent,
            413: ["BODY_TOO_BIG"],
            **FAILED,
            503: ["EXITING", "DRAINING", "TOO_MANY_TOPICS", *(["TOO_MANY_CHANNELS"] if is_channel else [])],
        }
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
        topic = topic_named(self._broker, topic_name(parameters(request.query)))
        return self._show(Target(topic.name, None, topic))

    @_change_endpoint("topic", TopicPolicy)
    def change_topic(self, request: HttpRequest) -> Answer | None:
        """PUT /v2/topic/policy"""
        name = valid_topic_name(parameters(request.query))
        return self._change(request, Target(name, None, self._broker.topics.get(name)))

    @_policy_endpoint("GET", "channel", ChannelPolicy)
    def show_channel(self, request: HttpRequest) -> Answer:
        """GET /v2/channel/policy"""
        channel = channel_named(self._broker, parameters(request.query))
        return self._show(Target(channel.topic.name, channel.name, channel))

    @_change_endpoint("channel", ChannelPolicy)
    def change_channel(self, request: HttpRequest) -> Answer | None:
        """PUT /v2/channel/policy"""
        topic_of, name = names(parameters(request.query))
        topic = self._broker.topics.get(topic_of)
        return self._change(request, Target(topic_of, name, None if topic is None else topic.channels.get(name)))

    # -- inside

    def _show(self, target: Target) -> Answer:
        return document(self._document(target, target.given_policy))

    def _change(self, request: HttpRequest, target: Target) -> Answer | None:
        is_dry_run = truth(parameters(request.query), DRY_RUN.name)
        if request.is_overlong:
            return _TOO_BIG
        try:
            given = _changed(target.policy_class, target.given_policy, request.body)
            shown = document(self._document(target, given, must_fit=True))
            if target.channel is not None:
                check_channel_policy(self._broker.options, target.topic, target.channel, given)
        except InvalidPolicy as error:
            raise Refused(failure(400, "INVALID_POLICY", detail=str(error))) from error
        if target.owner is None and not given:
            return _NO_CHANNEL if target.topic in self._broker.topics else _NO_TOPIC
        if is_dry_run:
            return self._foretell(target, given)
        change = partial(self._set, request, target, given, shown)
        for name in topics_named(given):
            if name not in topics_named(target.given_policy):
                return request.require(ADMIN, name, "", change)
        return change()

    def _foretell(self, target: Target, given: dict[str, Any]) -> Answer:
        """Return the answer of a dry run, with what the bounds of a channel would drop at once."""
        shown = self._document(target, given, must_fit=True)
        if isinstance(target.owner, Channel):
            try:
                shown["drops"] = target.owner.policies.preview_drops(given, self._pump.now())
            except BackendError as error:
                target.owner.topic.read_failed(error)
                shown["drops"] = None
        return document(shown)

    def _set(self, request: HttpRequest, target: Target, given: dict[str, Any], shown: Answer) -> Answer | None:
        """Change the policy, and answer when that is saved. A missing topic or channel is created."""

        def change() -> bool:
            topic = self._broker.topic(target.topic)
            owner = topic if target.channel is None else topic.channel(target.channel, self._pump.now())
            owner.policies.set(given)
            return target.is_ephemeral

        return perform_change(self._broker, self._pump, request, change, shown)

    def _document(self, target: Target, given: Mapping[str, Any], *, must_fit: bool = False) -> dict[str, Any]:
        """Return what GET answers for these settings. InvalidPolicy for those that do not fit, with `must_fit`."""
        resolved = partial(self._resolve, target)
        resolution = resolved(given) if must_fit else resolve_what_fits(resolved, given)
        policy = target.policy_class
        settings = {
            name: {
                "value": setting.json(getattr(resolution.policy, name)),
                "source": resolution.sources.get(name, DEFAULT),
            }
            for name, setting in settings_of(policy).items()
        }
        return {
            **target.names,
            "settings": settings,
            "set": policy_json(policy, given),
            "unused": [*resolution.unused],
        }

    def _resolve(self, target: Target, given: Mapping[str, Any]) -> Resolution[Any]:
        options = self._broker.options
        if target.channel is None:
            return options.resolve_topic(target.topic, given)
        return options.resolve_channel(target.topic, target.channel, given)


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
