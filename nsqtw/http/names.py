"""
Topic and channel of a request. Words and order of the refusals are nsqd's, also where /topic and /channel
have different ones for the same mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nsqtw.http.responses import Refused, failure
from nsqtw.names import is_valid_name

if TYPE_CHECKING:
    # An nsqlookupd has names, and no broker to load.
    from nsqtw.core.broker import Broker
    from nsqtw.core.channel import Channel
    from nsqtw.core.topic import Topic

_MISSING_TOPIC = failure(400, "MISSING_ARG_TOPIC")
_MISSING_CHANNEL = failure(400, "MISSING_ARG_CHANNEL")
_INVALID_TOPIC = failure(400, "INVALID_TOPIC")
_INVALID_ARG_TOPIC = failure(400, "INVALID_ARG_TOPIC")
_INVALID_ARG_CHANNEL = failure(400, "INVALID_ARG_CHANNEL")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")
_EPHEMERAL_TOPIC = failure(400, "EPHEMERAL_TOPIC")
_MISSING_ID = failure(400, "MISSING_ARG_ID")
_INVALID_ID = failure(400, "INVALID_ID")
_MESSAGE_ID = re.compile(r"[0-9a-fA-F]{16}")

Parameters = Mapping[str, str]


def topic_name(params: Parameters) -> str:
    """Return the parameter. Refused when it is missing."""
    if "topic" not in params:
        raise Refused(_MISSING_TOPIC)
    return params["topic"]


def valid_topic_name(params: Parameters) -> str:
    """The name for a topic that may have to be made. Refused."""
    name = topic_name(params)
    if not is_valid_name(name):
        raise Refused(_INVALID_TOPIC)
    return name


def names(params: Parameters) -> tuple[str, str]:
    """The names of a topic and a channel. Refused."""
    topic = topic_name(params)
    if not is_valid_name(topic):
        raise Refused(_INVALID_ARG_TOPIC)
    if "channel" not in params:
        raise Refused(_MISSING_CHANNEL)
    if not is_valid_name(params["channel"]):
        raise Refused(_INVALID_ARG_CHANNEL)
    return topic, params["channel"]


def topic_named(broker: Broker, name: str) -> Topic:
    """The topic of that name. Refused when there is none."""
    topic = broker.topics.get(name)
    if topic is None:
        raise Refused(_TOPIC_NOT_FOUND)
    return topic


def durable_topic(broker: Broker, params: Parameters) -> Topic:
    """The topic a request is about, which must have a log. Refused."""
    topic = topic_named(broker, topic_name(params))
    if topic.ephemeral:
        raise Refused(_EPHEMERAL_TOPIC)
    return topic


def message_id(params: Parameters) -> bytes:
    """The id of the message that a request is about, in lower case. Refused."""
    if "id" not in params:
        raise Refused(_MISSING_ID)
    if not _MESSAGE_ID.fullmatch(params["id"]):
        raise Refused(_INVALID_ID)
    return params["id"].lower().encode()


def channel_named(broker: Broker, params: Parameters) -> Channel:
    """The channel a request is about. Refused."""
    topic, name = names(params)
    channel = topic_named(broker, topic).channels.get(name)
    if channel is None:
        raise Refused(_CHANNEL_NOT_FOUND)
    return channel
