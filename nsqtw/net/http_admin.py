"""
POST /topic/... and /channel/...: create, delete, empty, pause and unpause.

What is answered with success survives a crash: it is answered when the broker has saved it. What is ephemeral is
never saved and answered at once. Words and order of the refusals are nsqd's, also where /topic and /channel have
different ones for the same mistake (nsqd specification 3.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, Exiting
from nsqtw.names import is_valid_name
from nsqtw.net.http_answers import DONE, EXITING, INTERNAL_ERROR, Answer, Refused, failure
from nsqtw.net.http_query import parameters
from nsqtw.net.http_request import HttpRequest
from nsqtw.net.http_routing import Route
from nsqtw.net.pump import Pump

_MISSING_TOPIC = failure(400, "MISSING_ARG_TOPIC")
_MISSING_CHANNEL = failure(400, "MISSING_ARG_CHANNEL")
_INVALID_TOPIC = failure(400, "INVALID_TOPIC")
_INVALID_ARG_TOPIC = failure(400, "INVALID_ARG_TOPIC")
_INVALID_ARG_CHANNEL = failure(400, "INVALID_ARG_CHANNEL")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")

_log = Logger()


class Administration:
    """Changes topics and channels of `broker`."""

    def __init__(self, broker: Broker, pump: Pump) -> None:
        self._broker = broker
        self._pump = pump

    def routes(self) -> list[Route]:
        """All of /topic and /channel."""
        handlers = {
            b"/topic/create": self._create_topic,
            b"/topic/delete": self._delete_topic,
            b"/topic/empty": self._empty_topic,
            b"/topic/pause": self._pause_topic,
            b"/topic/unpause": self._unpause_topic,
            b"/channel/create": self._create_channel,
            b"/channel/delete": self._delete_channel,
            b"/channel/empty": self._empty_channel,
            b"/channel/pause": self._pause_channel,
            b"/channel/unpause": self._unpause_channel,
        }
        return [Route(b"POST", path, handler) for path, handler in handlers.items()]

    # -- topics

    def _create_topic(self, request: HttpRequest) -> Answer | None:
        name = _topic_name(parameters(request.query))
        if not is_valid_name(name):
            raise Refused(_INVALID_TOPIC)
        topic = self._change(lambda: self._broker.topic(name))
        return self._saved(request, topic.ephemeral)

    def _delete_topic(self, request: HttpRequest) -> Answer | None:
        topic = self._known_topic(_topic_name(parameters(request.query)))
        waiter = self._waiter(request)
        self._change(lambda: self._broker.delete_topic(topic.name, waiter))
        return None

    def _empty_topic(self, request: HttpRequest) -> Answer | None:
        name = _topic_name(parameters(request.query))
        if not is_valid_name(name):
            raise Refused(_INVALID_TOPIC)
        topic = self._known_topic(name)
        self._change(topic.empty)
        return self._saved(request, topic.ephemeral)

    def _pause_topic(self, request: HttpRequest) -> Answer | None:
        topic = self._known_topic(_topic_name(parameters(request.query)))
        self._change(topic.pause)
        return self._saved(request, topic.ephemeral)

    def _unpause_topic(self, request: HttpRequest) -> Answer | None:
        topic = self._known_topic(_topic_name(parameters(request.query)))
        self._change(lambda: topic.unpause(self._pump.now()))
        return self._saved(request, topic.ephemeral)

    # -- channels

    def _create_channel(self, request: HttpRequest) -> Answer | None:
        topic_name, name = _channel_names(parameters(request.query))
        topic = self._known_topic(topic_name)
        channel = self._change(lambda: topic.channel(name, self._pump.now()))
        return self._saved(request, topic.ephemeral or channel.ephemeral)

    def _delete_channel(self, request: HttpRequest) -> Answer | None:
        channel = self._known_channel(request)
        self._change(lambda: channel.topic.delete_channel(channel.name))
        return self._saved(request, channel.topic.ephemeral or channel.ephemeral)

    def _empty_channel(self, request: HttpRequest) -> Answer | None:
        channel = self._known_channel(request)
        self._change(channel.empty)
        return self._saved(request, channel.topic.ephemeral or channel.ephemeral)

    def _pause_channel(self, request: HttpRequest) -> Answer | None:
        channel = self._known_channel(request)
        self._change(channel.pause)
        return self._saved(request, channel.topic.ephemeral or channel.ephemeral)

    def _unpause_channel(self, request: HttpRequest) -> Answer | None:
        channel = self._known_channel(request)
        self._change(channel.unpause)
        return self._saved(request, channel.topic.ephemeral or channel.ephemeral)

    # -- inside

    def _known_topic(self, name: str) -> Topic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise Refused(_TOPIC_NOT_FOUND)
        return topic

    def _known_channel(self, request: HttpRequest) -> Channel:
        topic_name, name = _channel_names(parameters(request.query))
        channel = self._known_topic(topic_name).channels.get(name)
        if channel is None:
            raise Refused(_CHANNEL_NOT_FOUND)
        return channel

    def _change[T](self, change: Callable[[], T]) -> T:
        """Do it, unless the broker stops: it would not be saved any more."""
        if self._broker.stopping:
            raise Refused(EXITING)
        try:
            return change()
        except Exiting:
            raise Refused(EXITING) from None
        except BackendError as error:
            _log.error("{error}", error=str(error))
            raise Refused(INTERNAL_ERROR) from None
        finally:
            self._pump.wake()

    def _saved(self, request: HttpRequest, is_ephemeral: bool) -> Answer | None:
        """The success of what was changed, or None when it comes after the change is saved."""
        if is_ephemeral:
            return DONE
        self._broker.save(self._waiter(request))
        return None
