"""
POST /topic/... and /channel/...: create, delete, empty, pause and unpause; and what nsqd has not got, under /v2.

What is answered with success survives a crash: it is answered when the broker has saved it. What is ephemeral is
never saved and answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.errors import BackendError, CapReached, Exiting
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
from nsqtw.http.responses import DONE, EXITING, INTERNAL_ERROR, INVALID_REQUEST, Answer, Refused, cap_reached, failure
from nsqtw.http.routes import Route
from nsqtw.names import is_ephemeral
from nsqtw.options.topics import DURABILITIES, STARTS, is_retention_time
from nsqtw.options.types import parse_duration
from nsqtw.runtime.pump import Pump

_MISSING_RETENTION = failure(400, "MISSING_ARG_TIME_OR_BYTES")
_INVALID_TIME = failure(400, "INVALID_TIME")
_INVALID_CLASS = failure(400, "INVALID_CLASS")
_INVALID_START = failure(400, "INVALID_START")
_EPHEMERAL_CHANNEL = failure(400, "EPHEMERAL_CHANNEL")

_DEFAULT = "default"
"""What the options say."""
_CLASSES = (*DURABILITIES, _DEFAULT)

_Change = Callable[[Parameters], bool]
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
            b"/v2/topic/retention": self._set_retention,
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
        except CapReached as error:
            return cap_reached(error)
        except BackendError as error:
            return _failed(request, error)
        finally:
            self._pump.wake()
        if is_ephemeral:
            return DONE
        self._broker.checkpointer.ask(
            lambda error: request.answer_later(DONE if error is None else _failed(request, error))
        )
        return None

    # -- topics

    def _create_topic(self, params: Parameters) -> bool:
        return self._broker.topic(valid_topic_name(params)).ephemeral

    def _delete_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        self._broker.delete_topic(topic.name)
        return topic.ephemeral

    def _empty_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, valid_topic_name(params))
        topic.empty()
        return topic.ephemeral

    def _pause_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        topic.pause()
        return topic.ephemeral

    def _unpause_topic(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        topic.unpause(self._pump.now())
        return topic.ephemeral

    def _set_durability(self, params: Parameters) -> bool:
        topic = topic_named(self._broker, topic_name(params))
        durability = params.get("class", "")
        if durability not in _CLASSES:
            raise Refused(_INVALID_CLASS)
        topic.set_durability("" if durability == _DEFAULT else durability)
        return topic.ephemeral

    def _set_retention(self, params: Parameters) -> bool:
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

    def _create_channel(self, params: Parameters) -> bool:
        topic, name = names(params)
        start = params.get("start", "")
        if start and start not in STARTS:
            raise Refused(_INVALID_START)
        if start and is_ephemeral(name):
            raise Refused(_EPHEMERAL_CHANNEL)
        return _is_ephemeral(topic_named(self._broker, topic).channel(name, self._pump.now(), start))

    def _delete_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.topic.delete_channel(channel.name)
        return _is_ephemeral(channel)

    def _empty_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.empty()
        return _is_ephemeral(channel)

    def _pause_channel(self, params: Parameters) -> bool:
        channel = channel_named(self._broker, params)
        channel.pause()
        return _is_ephemeral(channel)

    def _unpause_channel(self, params: Parameters) -> bool:
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


def _failed(request: HttpRequest, error: Exception) -> Answer:
    """It was not stored: say why in the log, the answer is one word."""
    _log.error("{target}: {error}", target=request.target.decode("latin-1"), error=str(error))
    return INTERNAL_ERROR
