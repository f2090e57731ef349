"""
The endpoints under /v2/subscribe: consuming over HTTP, with --http-subscribe.

    POST /v2/subscribe/poll?topic=&channel=&max=&wait=&msg_timeout=        messages, as soon as there are some
    POST /v2/subscribe/finish, touch?topic=&channel=                       a token a line
    POST /v2/subscribe/requeue?topic=&channel=&delay=                      likewise
    GET /v2/subscribe/events?topic=&channel=&max_in_flight=&msg_timeout=   server-sent events
    GET /v2/subscribe/websocket?topic=&channel=&max_in_flight=&msg_timeout=

Every one of them needs the right to subscribe to the channel. The GETs change something, too, so a page of another site
may send none of them. A secret is never taken from a query: queries are logged, here and by proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from nsqtw.api.context import ApiContext
from nsqtw.api.message_document import MESSAGE_PROPERTIES, MESSAGE_REQUIRED
from nsqtw.api.subscribe.events import CONTENT_TYPE, EventStream
from nsqtw.api.subscribe.poll import PollTable
from nsqtw.api.subscribe.stream import MessageStream
from nsqtw.api.subscribe.subscribers import Failed, Subscribers
from nsqtw.api.subscribe.subscription import SUBSCRIBE_DISABLED, Source
from nsqtw.http.endpoints import CHANNEL, CHANNEL_WORDS, FAILED, JSON, TOPIC, Errors, Parameter, Section, endpoint
from nsqtw.http.names import names
from nsqtw.http.query import duration, parameters, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, Answer, Refused, document, failure
from nsqtw.protocols.subscription import is_msg_timeout
from nsqtw.rights import SUBSCRIBE

MAX = 10
MOST = 1000
"""Messages of one answer to a poll."""
WAIT_SECONDS = 20.0
MAX_WAIT_SECONDS = 60.0
MAX_TOKEN_BYTES = 64 * 1024

_INVALID_MAX = failure(400, "INVALID_MAX")
_INVALID_MAX_IN_FLIGHT = failure(400, "INVALID_MAX_IN_FLIGHT")
_INVALID_MSG_TIMEOUT = failure(400, "INVALID_MSG_TIMEOUT")
_INVALID_WAIT = failure(400, "INVALID_WAIT")
_TOO_MANY_TOKENS = failure(413, "TOO_MANY_TOKENS")

_MAX = Parameter("max", {"type": "integer", "minimum": 1, "maximum": MOST, "default": MAX})
_WAIT = Parameter("wait", {"type": "string", "default": "20s", "description": "a duration, 60s at most"})
_MSG_TIMEOUT = Parameter("msg_timeout", {"type": "string", "description": "a duration; without it --msg-timeout"})
_MAX_IN_FLIGHT = Parameter(
    "max_in_flight",
    {
        "type": "integer",
        "minimum": 0,
        "default": 1,
        "description": "messages without an answer, --max-rdy-count at most",
    },
)
_DELAY = Parameter(
    "delay",
    {"type": "string", "default": "0", "description": "a duration; a longer one than --max-req-timeout is shortened"},
)
_TOKENS = "tokens of messages, one a line"

_MESSAGE = {
    "type": "object",
    "properties": {**MESSAGE_PROPERTIES, "token": {"type": "string", "description": "names this delivery"}},
    "required": [*MESSAGE_REQUIRED, "token"],
}
_MESSAGES = {
    JSON: {
        "type": "object",
        "properties": {
            "messages": {"type": "array", "items": _MESSAGE},
            **{name: {"type": "boolean", "description": "false where it is absent"} for name in ("paused", "draining")},
        },
        "required": ["messages"],
    }
}
_FAILED_TOKEN = {
    "type": "object",
    "properties": {
        "token": {"type": "string"},
        "error": {"type": "string", "enum": ["INVALID_TOKEN", "NOT_IN_FLIGHT"]},
    },
    "required": ["token", "error"],
}
_ERRORS: Errors = {403: ["SUBSCRIBE_DISABLED"], **FAILED}
_SUBSCRIBE_ERRORS: Errors = {**_ERRORS, 503: ["EXITING", "TOO_MANY_SUBSCRIBERS", "SUBSCRIBE_FAILED"]}


def _counts(done: str) -> Mapping[str, object]:
    """Return the schema of the answer to tokens."""
    properties = {done: {"type": "integer"}, "failed": {"type": "array", "items": _FAILED_TOKEN}}
    return {JSON: {"type": "object", "properties": properties, "required": [done, "failed"]}}


class Subscribing(Section):
    """Lets HTTP clients consume from the channels of a broker."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._options = context.broker.options
        self._subscribers = Subscribers(context)
        self._polls = PollTable(self._subscribers)

    # -- getting messages

    @endpoint(
        "POST",
        "/v2/subscribe/poll",
        "Wait for messages of a channel",
        required=(TOPIC, CHANNEL),
        optional=(_MAX, _WAIT, _MSG_TIMEOUT),
        success=_MESSAGES,
        errors={
            400: [*CHANNEL_WORDS, "INVALID_MAX", "INVALID_WAIT", "INVALID_MSG_TIMEOUT"],
            404: ["CHANNEL_NOT_FOUND"],
            **_SUBSCRIBE_ERRORS,
        },
        needs=SUBSCRIBE,
        logged=False,
    )
    def poll(self, request: HttpRequest) -> None:
        """POST /v2/subscribe/poll"""
        params = self._parameters(request)
        source = self._source(params)
        count = whole_number(params, _MAX.name, MAX, lowest=1)
        if count > MOST:
            raise Refused(_INVALID_MAX)
        seconds = duration(params, _WAIT.name, WAIT_SECONDS)
        if seconds > MAX_WAIT_SECONDS:
            raise Refused(_INVALID_WAIT)
        self._polls.wait(request, source, count, seconds)

    @endpoint(
        "GET",
        "/v2/subscribe/events",
        "Messages of a channel as server-sent events",
        required=(TOPIC, CHANNEL),
        optional=(_MAX_IN_FLIGHT, _MSG_TIMEOUT),
        success={CONTENT_TYPE.decode(): {"type": "string"}},
        errors={400: [*CHANNEL_WORDS, "INVALID_MAX_IN_FLIGHT", "INVALID_MSG_TIMEOUT"], **_SUBSCRIBE_ERRORS},
        needs=SUBSCRIBE,
        is_change=True,
    )
    def events(self, request: HttpRequest) -> None:
        """GET /v2/subscribe/events"""
        self._stream(request, EventStream)

    @endpoint(
        "GET",
        "/v2/subscribe/websocket",
        "Messages of a channel, and their answers, on a WebSocket",
        required=(TOPIC, CHANNEL),
        optional=(_MAX_IN_FLIGHT, _MSG_TIMEOUT),
        success=None,
        errors={
            400: [*CHANNEL_WORDS, "INVALID_MAX_IN_FLIGHT", "INVALID_MSG_TIMEOUT"],
            426: ["UPGRADE_REQUIRED"],
            **_SUBSCRIBE_ERRORS,
        },
        needs=SUBSCRIBE,
        is_change=True,
    )
    def websocket(self, request: HttpRequest) -> None:
        """GET /v2/subscribe/websocket"""
        from nsqtw.api.subscribe.websocket import WebSocket  # no start waits for the library

        self._stream(request, WebSocket)

    # -- answering messages

    @endpoint(
        "POST",
        "/v2/subscribe/finish",
        "Finish messages",
        required=(TOPIC, CHANNEL),
        body=_TOKENS,
        max_body=MAX_TOKEN_BYTES,
        too_big=_TOO_MANY_TOKENS,
        success=_counts("finished"),
        errors={400: [*CHANNEL_WORDS], 413: ["TOO_MANY_TOKENS"], **_ERRORS},
        needs=SUBSCRIBE,
        logged=False,
    )
    def finish(self, request: HttpRequest) -> Answer:
        """POST /v2/subscribe/finish"""
        return self._answered(request, "finished", self._subscribers.finish)

    @endpoint(
        "POST",
        "/v2/subscribe/requeue",
        "Have messages delivered again",
        required=(TOPIC, CHANNEL),
        optional=(_DELAY,),
        body=_TOKENS,
        max_body=MAX_TOKEN_BYTES,
        too_big=_TOO_MANY_TOKENS,
        success=_counts("requeued"),
        errors={400: [*CHANNEL_WORDS, "INVALID_DELAY"], 413: ["TOO_MANY_TOKENS"], **_ERRORS},
        needs=SUBSCRIBE,
        logged=False,
    )
    def requeue(self, request: HttpRequest) -> Answer:
        """POST /v2/subscribe/requeue"""
        delay = duration(parameters(request.query), _DELAY.name, 0.0)
        return self._answered(request, "requeued", partial(self._subscribers.requeue, delay=delay))

    @endpoint(
        "POST",
        "/v2/subscribe/touch",
        "Restart the timeouts of messages",
        required=(TOPIC, CHANNEL),
        body=_TOKENS,
        max_body=MAX_TOKEN_BYTES,
        too_big=_TOO_MANY_TOKENS,
        success=_counts("touched"),
        errors={400: [*CHANNEL_WORDS], 413: ["TOO_MANY_TOKENS"], **_ERRORS},
        needs=SUBSCRIBE,
        logged=False,
    )
    def touch(self, request: HttpRequest) -> Answer:
        """POST /v2/subscribe/touch"""
        return self._answered(request, "touched", self._subscribers.touch)

    # -- inside

    def _parameters(self, request: HttpRequest, *, is_answer: bool = False) -> Mapping[str, str]:
        """
        Return the parameters of a request. Refused when consuming is off or the broker stops. Messages that were
        delivered before it was switched off can be answered.
        """
        if not self._options.http_subscribe and not (is_answer and self._subscribers.count):
            raise Refused(SUBSCRIBE_DISABLED)
        if self._broker.stopping:
            raise Refused(EXITING)
        return parameters(request.query)

    def _source(self, params: Mapping[str, str]) -> Source:
        topic, channel = names(params)
        seconds = duration(params, _MSG_TIMEOUT.name, self._options.msg_timeout)
        if _MSG_TIMEOUT.name in params and not is_msg_timeout(seconds, self._options):
            raise Refused(_INVALID_MSG_TIMEOUT)
        return Source(topic, channel, seconds)

    def _stream(self, request: HttpRequest, kind: type[MessageStream]) -> None:
        params = self._parameters(request)
        source = self._source(params)
        credit = whole_number(params, _MAX_IN_FLIGHT.name, 1)
        if credit > self._options.max_rdy_count:
            raise Refused(_INVALID_MAX_IN_FLIGHT)
        kind(self._subscribers, request, source).begin(credit)

    def _answered(
        self, request: HttpRequest, done: str, act: Callable[[str, str, list[str]], tuple[int, Failed]]
    ) -> Answer:
        """Do `act` with the tokens of a body."""
        topic, channel = names(self._parameters(request, is_answer=True))
        if request.is_overlong:
            return _TOO_MANY_TOKENS
        tokens = request.body.decode("utf-8", "replace").split()
        count, failed = act(topic, channel, tokens)
        return document({done: count, "failed": failed})
