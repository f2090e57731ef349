"""
POST /topic/... and /channel/...: create, delete, empty, pause and unpause; and what nsqd has not got, under /v2.

What is answered with success survives a crash: it is answered when the broker has saved it. What is ephemeral is
never saved and answered at once. Words and order of the refusals are nsqd's, also where /topic and /channel have
different ones for the same mistake (nsqd specification 3.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, Exiting
from nsqtw.names import is_valid_name
from nsqtw.net.http_answers import DONE, EXITING, INTERNAL_ERROR, INVALID_REQUEST, Answer, Refused, failure
from nsqtw.net.http_query import parameters
from nsqtw.net.http_request import HttpRequest
from nsqtw.net.http_routing import Route
from nsqtw.net.pump import Pump
from nsqtw.topic_rules import DURABILITIES

_MISSING_TOPIC = failure(400, "MISSING_ARG_TOPIC")
_MISSING_CHANNEL = failure(400, "MISSING_ARG_CHANNEL")
_INVALID_TOPIC = failure(400, "INVALID_TOPIC")
_INVALID_ARG_TOPIC = failure(400, "INVALID_ARG_TOPIC")
_INVALID_ARG_CHANNEL = failure(400, "INVALID_ARG_CHANNEL")
_INVALID_CLASS = failure(400, "INVALID_CLASS")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")

_DEFAULT = "default"
"""The durability class that the options say."""
_CLASSES = (*DURABILITIES, _DEFAULT)

_Parameters = Mapping[str, str]
_Change = Callable[[_Parameters], bool]
"""Changes something and returns whether it is ephemeral. Refused, Exiting, BackendError."""

_log = Logger()


class Administration:
    """Changes topics and channels of `broker`."""

    def __init__(self, broker: Broker, pump: Pump) -> None:
        self._broker = broker
        self._pump = pump

    def routes(self) -> list[Route]:
        """All of /topic and /channel."""
        changes: dict[bytes, _Change] = {
            b"/topic/create": self._create_topic,
            b"/topic/delete": self._delete_topic,
            b"/topic/empty": self._empty_topic,
            b"/topic/pause": self._pause_topic,
            b"/topic/unpause": self._unpause_topic,
            b"/v2/topic/durability": self._set_durability,
            b"/channel/create": self._create_channel,
            b"/channel/delete": self._delete_channel,
            b"/channel/empty": self._empty_channel,
            b"/channel/pause": self._pause_channel,
            b"/channel/unpause": self._unpause_channel,
        }
        # nsqd does not look at the body of the first one, and for the others at no more than whether it can be read.
        return [
            Route(
                b"POST",
                path,
                partial(self._perform, change),
                broken=None if path == b"/topic/create" else INVALID_REQUEST,
                about=("topic", "channel") if path.startswith(b"/channel/") else ("topic",),
            )
            for path, change in changes.items()
        ]

    def _perform(self, change: _Change, request: HttpRequest) -> Answer | None:
        if self._broker.stopping:
            return EXITING
        try:
            is_ephemeral = change(parameters(request.query))
        except Exiting:
            return EXITING
        except BackendError as error:
            return _failed(request, error)
        finally:
            self._pump.wake()
        if is_ephemeral:
            return DONE
        self._broker.save(lambda error: request.answer_later(DONE if error is None else _failed(request, error)))
        return None

    # -- topics

    def _create_topic(self, given: _Parameters) -> bool:
        return self._broker.topic(_valid_topic_name(given)).ephemeral

    def _delete_topic(self, given: _Parameters) -> bool:
        topic = self._topic(_topic_name(given))
        self._broker.delete_topic(topic.name)
        return topic.ephemeral

    def _empty_topic(self, given: _Parameters) -> bool:
        topic = self._topic(_valid_topic_name(given))
        topic.empty()
        return topic.ephemeral

    def _pause_topic(self, given: _Parameters) -> bool:
        topic = self._topic(_topic_name(given))
        topic.pause()
        return topic.ephemeral

    def _unpause_topic(self, given: _Parameters) -> bool:
        topic = self._topic(_topic_name(given))
        topic.unpause(self._pump.now())
        return topic.ephemeral

    def _set_durability(self, given: _Parameters) -> bool:
        topic = self._topic(_topic_name(given))
        durability = given.get("class", "")
        if durability not in _CLASSES:
            raise Refused(_INVALID_CLASS)
        topic.set_durability("" if durability == _DEFAULT else durability)
        return topic.ephemeral

    # -- channels

    def _create_channel(self, given: _Parameters) -> bool:
        topic_name, name = _names(given)
        return _is_ephemeral(self._topic(topic_name).channel(name, self._pump.now()))

    def _delete_channel(self, given: _Parameters) -> bool:
        channel = self._channel(given)
        channel.topic.delete_channel(channel.name)
        return _is_ephemeral(channel)

    def _empty_channel(self, given: _Parameters) -> bool:
        channel = self._channel(given)
        channel.empty()
        return _is_ephemeral(channel)

    def _pause_channel(self, given: _Parameters) -> bool:
        channel = self._channel(given)
        channel.pause()
        return _is_ephemeral(channel)

    def _unpause_channel(self, given: _Parameters) -> bool:
        channel = self._channel(given)
        channel.unpause()
        return _is_ephemeral(channel)

    # -- inside

    def _topic(self, name: str) -> Topic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise Refused(_TOPIC_NOT_FOUND)
        return topic

    def _channel(self, given: _Parameters) -> Channel:
        topic_name, name = _names(given)
        channel = self._topic(topic_name).channels.get(name)
        if channel is None:
            raise Refused(_CHANNEL_NOT_FOUND)
        return channel


def _topic_name(given: _Parameters) -> str:
    if "topic" not in given:
        raise Refused(_MISSING_TOPIC)
    return given["topic"]


def _valid_topic_name(given: _Parameters) -> str:
    name = _topic_name(given)
    if not is_valid_name(name):
        raise Refused(_INVALID_TOPIC)
    return name


def _names(given: _Parameters) -> tuple[str, str]:
    """The topic and the channel."""
    topic = _topic_name(given)
    if not is_valid_name(topic):
        raise Refused(_INVALID_ARG_TOPIC)
    if "channel" not in given:
        raise Refused(_MISSING_CHANNEL)
    if not is_valid_name(given["channel"]):
        raise Refused(_INVALID_ARG_CHANNEL)
    return topic, given["channel"]


def _is_ephemeral(channel: Channel) -> bool:
    return channel.ephemeral or channel.topic.ephemeral


def _failed(request: HttpRequest, error: Exception) -> Answer:
    """It was not stored: say why in the log, the answer is one word."""
    _log.error("{target}: {error}", target=request.target.decode("latin-1"), error=str(error))
    return INTERNAL_ERROR
