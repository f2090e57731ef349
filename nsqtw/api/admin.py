"""
POST /topic/... and /channel/...: create, delete, empty, pause and unpause; and additions to nsqd's API, under /v2.

A change that is answered with success survives a crash: the broker answers when it has saved it. A change of an
ephemeral topic or channel is never saved and answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nsqtw.api.changes import perform_change
from nsqtw.api.context import ApiContext
from nsqtw.core.channel import Channel
from nsqtw.http.endpoints import (
    CHANNEL,
    CHANNEL_WORDS,
    FAILED,
    LOG_WORDS,
    NOT_STORED,
    TOPIC,
    Errors,
    Method,
    Parameter,
    Section,
    endpoint,
)
from nsqtw.http.names import (
    Parameters,
    channel_named,
    durable_topic,
    names,
    topic_name,
    topic_named,
    valid_topic_name,
)
from nsqtw.http.query import parameters, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import DONE, Answer, Refused, failure
from nsqtw.http.routes import Handler
from nsqtw.names import is_ephemeral
from nsqtw.options.texts import parse_duration
from nsqtw.options.topics import DURABILITIES, STARTS, is_retention_time

_MISSING_RETENTION = failure(400, "MISSING_ARG_TIME_OR_BYTES")
_INVALID_TIME = failure(400, "INVALID_TIME")
_INVALID_CLASS = failure(400, "INVALID_CLASS")
_INVALID_START = failure(400, "INVALID_START")
_EPHEMERAL_CHANNEL = failure(400, "EPHEMERAL_CHANNEL")

_DEFAULT = "default"
"""The limits of the options."""
_CLASSES = (*DURABILITIES, _DEFAULT)

_CLASS = Parameter("class", {"type": "string", "enum": [*_CLASSES]})
_TIME = Parameter("time", {"type": "string", "description": "a duration such as 24h, 0 for any time, or default"})
_BYTES = Parameter("bytes", {"type": "string", "pattern": "^([0-9]{1,18}|default)$", "description": "0 for any number"})
_START = Parameter("start", {"type": "string", "enum": list(STARTS)})

_TOPIC_ERRORS: Errors = {
    400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"],
    404: ["TOPIC_NOT_FOUND"],
    **NOT_STORED,
}
_NO_NEW_TOPIC: Errors = {400: _TOPIC_ERRORS[400], **FAILED, 503: ["EXITING", "DRAINING", "TOO_MANY_TOPICS"]}
_CHANNEL_ERRORS: Errors = {400: CHANNEL_WORDS, 404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"], **NOT_STORED}
_NO_NEW_CHANNEL: Errors = {
    400: [*CHANNEL_WORDS, "INVALID_START", "EPHEMERAL_CHANNEL"],
    404: ["TOPIC_NOT_FOUND"],
    **FAILED,
    503: ["EXITING", "TOO_MANY_CHANNELS"],
}

_Change = Callable[[Parameters], bool]
"""Changes something and returns whether it is ephemeral. Refused, Exiting, BackendError."""


def _topic_change(name: str, summary: str, **fields: Any) -> Callable[[Method], Method]:
    """Declare /topic/`name`."""
    # nsqd ignores the body of /topic/create; of the other requests it only checks that it can be read.
    fields = {"errors": _TOPIC_ERRORS, **fields}
    return endpoint("POST", f"/topic/{name}", f"Topic: {summary}", required=(TOPIC,), **fields)


def _channel_change(name: str, summary: str, **fields: Any) -> Callable[[Method], Method]:
    """Declare /channel/`name`."""
    fields = {"errors": _CHANNEL_ERRORS, **fields}
    return endpoint("POST", f"/channel/{name}", f"Channel: {summary}", required=(TOPIC, CHANNEL), **fields)


class Administration(Section):
    """Changes topics and channels of a broker."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump

    def handler(self, method: _Change) -> Handler:
        """Section API"""
        return partial(self._perform, method)

    def _perform(self, change: _Change, request: HttpRequest) -> Answer | None:
        return perform_change(self._broker, self._pump, request, lambda: change(parameters(request.query)), DONE)

    # -- topics

    @_topic_change("create", "make it, if it is not there", errors=_NO_NEW_TOPIC, broken=None)
    def create_topic(self, params: Parameters) -> bool:
        return self._broker.topic(valid_topic_name(params)).ephemeral

    @_topic_change("delete", "remove it and all in it")
    def delete_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        self._broker.delete_topic(topic.name)
        return topic.ephemeral

    @_topic_change("empty", "drop what is in it")
    def empty_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, valid_topic_name(params))
        topic.empty()
        return topic.ephemeral

    @_topic_change("pause", "let nothing out of it")
    def pause_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        topic.pause()
        return topic.ephemeral

    @_topic_change("unpause", "let out what is in it")
    def unpause_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        topic.unpause(self._pump.now())
        return topic.ephemeral

    @endpoint(
        "POST",
        "/v2/topic/durability",
        "What an OK means for a topic",
        required=(TOPIC, _CLASS),
        errors={
            400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_CLASS"],
            404: ["TOPIC_NOT_FOUND"],
            **NOT_STORED,
        },
    )
    def set_durability(self, params: Parameters) -> bool:
        """POST /v2/topic/durability"""
        topic = topic_named(self._broker, topic_name(params))
        durability = params.get("class", "")
        if durability not in _CLASSES:
            raise Refused(_INVALID_CLASS)
        topic.set_durability("" if durability == _DEFAULT else durability)
        return topic.ephemeral

    @endpoint(
        "POST",
        "/v2/topic/retention",
        "What a topic keeps of what is finished",
        required=(TOPIC,),
        optional=(_TIME, _BYTES),
        errors={
            400: [*LOG_WORDS, "MISSING_ARG_TIME_OR_BYTES", "INVALID_TIME", "INVALID_BYTES"],
            404: ["TOPIC_NOT_FOUND"],
            **NOT_STORED,
        },
    )
    def set_retention(self, params: Parameters) -> bool:
        """POST /v2/topic/retention"""
        topic = durable_topic(self._broker, params)
        time, size = topic.reader.retention_policy.topic_limits
        if "time" in params:
            time = _retention_time(params["time"])
        if "bytes" in params:
            size = _retention_bytes(params["bytes"])
        if not {"time", "bytes"} & set(params):
            raise Refused(_MISSING_RETENTION)
        topic.reader.retention_policy.give((time, size), self._pump.now())
        topic.reader.notify()
        topic.touch()
        return False

    # -- channels

    @_channel_change("create", "make it, if it is not there", optional=(_START,), errors=_NO_NEW_CHANNEL)
    def create_channel(self, params: Parameters) -> bool:
        topic, name = names(params)
        start = params.get("start", "")
        if start and start not in STARTS:
            raise Refused(_INVALID_START)
        if start and is_ephemeral(name):
            raise Refused(_EPHEMERAL_CHANNEL)
        return _is_ephemeral(topic_named(self._broker, topic).channel(name, self._pump.now(), start))

    @_channel_change("delete", "remove it and all in it")
    def delete_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.topic.delete_channel(channel.name)
        return _is_ephemeral(channel)

    @_channel_change("empty", "drop what is in it")
    def empty_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.empty()
        return _is_ephemeral(channel)

    @_channel_change("pause", "let nothing out of it")
    def pause_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.pause()
        return _is_ephemeral(channel)

    @_channel_change("unpause", "let out what is in it")
    def unpause_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.unpause()
        return _is_ephemeral(channel)


def _retention_time(text: str) -> float | None:
    """Seconds; None for what the options say. Refused."""
    if text == _DEFAULT:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = -1.0
    if not is_retention_time(seconds):
        raise Refused(_INVALID_TIME)
    return seconds


def _retention_bytes(text: str) -> int | None:
    """Bytes; None for what the options say. Refused."""
    return None if text == _DEFAULT else whole_number({"bytes": text}, "bytes", 0)


def _is_ephemeral(channel: Channel) -> bool:
    return channel.ephemeral or channel.topic.ephemeral
