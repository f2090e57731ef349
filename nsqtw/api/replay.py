"""
POST /v2/channel/seek: moving a channel in its topic's log. GET /v2/channel/messages, /v2/topic/messages: looking at
messages without consuming them.

    /v2/channel/seek?topic=&channel=&to=&dry_run=   {"position", "skipped", "replayed", "depth", "max_drops"};
                                                    `to`: log_position
    /v2/channel/messages?topic=&channel=&state=     {"messages": [...], "more", "next"}
    /v2/topic/messages?topic=                       the same of what waits for the topic's channels

The two last ones also take `limit`, `after` and `contains`.

A seek is done between two saves: the first one, so that positions.db has all that is unfinished and it can be counted
what is forgotten of it; the second one makes it durable, and then it is answered. A dry run takes only the first one.
When the log has to be looked through, for messages of other channels or for what a move forwards skips, and that takes
longer than a turn, the first save is repeated.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.api.log_position import TIME, LogPosition, parse_log_position
from nsqtw.api.message_document import MESSAGE_PROPERTIES, MESSAGE_REQUIRED, readable
from nsqtw.core.channel import Channel
from nsqtw.core.for_others import ForOthers
from nsqtw.core.peek import READY, STATES, Peek, Peeked, Search, is_place, peek_channel, peek_topic
from nsqtw.core.segment import sequence_of
from nsqtw.errors import BackendError
from nsqtw.http.endpoints import (
    CHANNEL,
    CHANNEL_WORDS,
    DRY_RUN,
    FAILED,
    JSON,
    LOG_WORDS,
    NOT_STORED,
    TOPIC,
    Parameter,
    Section,
    endpoint,
    numbers,
)
from nsqtw.http.names import Parameters, channel_named, durable_topic
from nsqtw.http.query import parameters, truth, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, Refused, document, failure
from nsqtw.interfaces import Waiter
from nsqtw.message_headers import decode_headers
from nsqtw.options.topics import EARLIEST, LATEST
from nsqtw.rights import SUBSCRIBE

LIMIT = 10
MAX_MESSAGES = 1000
MAX_TEXT = 255

_MISSING_TO = failure(400, "MISSING_ARG_TO")
_INVALID_TO = failure(400, "INVALID_TO")
_INVALID_AFTER = failure(400, "INVALID_AFTER")
_INVALID_CONTAINS = failure(400, "INVALID_CONTAINS")
_INVALID_STATE = failure(400, "INVALID_STATE")
_EPHEMERAL_CHANNEL = failure(400, "EPHEMERAL_CHANNEL")
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")
_MESSAGE_NOT_FOUND = failure(404, "MESSAGE_NOT_FOUND")

_TO = Parameter(
    "to", {"type": "string", "description": f"earliest, latest, the id of a message, {TIME['description']}"}
)
_STATE = Parameter("state", {"type": "string", "enum": list(STATES), "default": STATES[0]})
_LIMIT = Parameter(
    "limit",
    {"type": "integer", "minimum": 1, "default": LIMIT, "description": f"of messages; {MAX_MESSAGES} at most"},
)
_AFTER = Parameter("after", {"type": "string", "description": "the `next` of the answer that this one follows"})
_CONTAINS = Parameter(
    "contains",
    {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_TEXT,
        "description": "a text in the body, or in a header as `name: value`, or the id; case of ASCII is ignored",
    },
)
_CHANNEL_WORDS = (*CHANNEL_WORDS, "EPHEMERAL_CHANNEL")
_MESSAGE = {
    "type": "object",
    "properties": {
        **MESSAGE_PROPERTIES,
        "channel": {"type": "string", "description": "the only channel that gets the message"},
        "due": {"type": "integer"},
        "deadline": {"type": "integer"},
        "consumer": {"type": "object"},
    },
    "required": [*MESSAGE_REQUIRED],
}
_MESSAGES = {
    JSON: {
        "type": "object",
        "properties": {
            "messages": {"type": "array", "items": _MESSAGE},
            "more": {"type": "boolean"},
            "next": {"type": "string", "description": "`after` of the request that goes on, when there may be more"},
        },
        "required": ["messages", "more"],
    }
}

_log = Logger()


class Replay(Section):
    """Moves channels of a broker, and shows their messages. Permission to subscribe is permission to look."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump

    # -- moving

    @endpoint(
        "POST",
        "/v2/channel/seek",
        "Move a channel in its topic's log",
        required=(TOPIC, CHANNEL, _TO),
        optional=(DRY_RUN,),
        success=numbers("position", "skipped", "replayed", "depth", "max_drops"),
        errors={
            400: [*_CHANNEL_WORDS, "MISSING_ARG_TO", "INVALID_TO", "INVALID_DRY_RUN"],
            404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND", "MESSAGE_NOT_FOUND"],
            **NOT_STORED,
        },
    )
    def seek(self, request: HttpRequest) -> Answer | None:
        """POST /v2/channel/seek"""
        params = parameters(request.query)
        channel = self._durable_channel(params)
        if "to" not in params:
            raise Refused(_MISSING_TO)
        target = parse_log_position(params["to"])
        if target is None:
            raise Refused(_INVALID_TO)
        is_dry_run = truth(params, DRY_RUN.name)
        if self._broker.stopping:
            return EXITING
        self._broker.checkpointer.ask(partial(self._seek_now, request, channel, target, is_dry_run, None))
        self._pump.wake()
        return None

    def _seek_now(
        self,
        request: HttpRequest,
        channel: Channel,
        target: LogPosition,
        is_dry_run: bool,
        others: ForOthers | None,
        error: Exception | None,
    ) -> None:
        """The unfinished messages are saved, or saving them failed. `others`: what was found of them before."""
        if error is not None:
            request.answer_later(_failed(error))
            return
        try:
            if channel.exiting:
                raise Refused(_CHANNEL_NOT_FOUND)
            position, now = _position(channel, target), self._pump.now()
            skips_all = _is_after_all(target, self._broker.timestamp_ns(now) // 10**6)
            others = channel.look_from(position, others, skips_all=skips_all)
            again = partial(self._seek_now, request, channel, target, is_dry_run, others)
            if not others.look():
                others.look_on(partial(self._save, again))
                self._pump.wake()
                return
            if is_dry_run:
                moved = channel.preview_seek(position, others, skips_all=skips_all, now=now)
            else:
                moved = channel.seek(position, others, skips_all=skips_all, now=now)
        except Refused as refused:
            request.answer_later(refused.answer)
            return
        except BackendError as failed:
            request.answer_later(_failed(failed))
            return
        done = document({"position": position, **moved._asdict()})
        if is_dry_run:
            request.answer_later(done)
            return
        self._broker.checkpointer.ask(lambda failed: request.answer_later(done if failed is None else _failed(failed)))
        self._pump.wake()

    def _save(self, then: Waiter, error: Exception | None) -> None:
        """The log was looked through, or that failed."""
        if error is not None:
            then(error)
            return
        self._broker.checkpointer.ask(then)
        self._pump.wake()

    # -- looking

    @endpoint(
        "GET",
        "/v2/channel/messages",
        "Look at a channel's messages",
        required=(TOPIC, CHANNEL),
        optional=(_STATE, _LIMIT, _AFTER, _CONTAINS),
        success=_MESSAGES,
        errors={
            400: [*_CHANNEL_WORDS, "INVALID_STATE", "INVALID_LIMIT", "INVALID_AFTER", "INVALID_CONTAINS"],
            404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"],
            **FAILED,
        },
        needs=SUBSCRIBE,
    )
    def channel_messages(self, request: HttpRequest) -> Answer:
        """GET /v2/channel/messages"""
        params = parameters(request.query)
        channel = self._durable_channel(params)
        state, limit = params.get("state", READY), whole_number(params, "limit", LIMIT, lowest=1)
        if state not in STATES:
            raise Refused(_INVALID_STATE)
        search, count = _search(params), min(limit, MAX_MESSAGES)
        return self._shown(lambda: peek_channel(channel, state, count, self._pump.now(), search))

    @endpoint(
        "GET",
        "/v2/topic/messages",
        "Look at what waits for a topic's channels",
        required=(TOPIC,),
        optional=(_LIMIT, _AFTER, _CONTAINS),
        success=_MESSAGES,
        errors={
            400: [*LOG_WORDS, "INVALID_LIMIT", "INVALID_AFTER", "INVALID_CONTAINS"],
            404: ["TOPIC_NOT_FOUND"],
            **FAILED,
        },
        needs=SUBSCRIBE,
    )
    def topic_messages(self, request: HttpRequest) -> Answer:
        """GET /v2/topic/messages"""
        params = parameters(request.query)
        topic = durable_topic(self._broker, params)
        limit = min(whole_number(params, "limit", LIMIT, lowest=1), MAX_MESSAGES)
        search = _search(params)
        return self._shown(lambda: peek_topic(topic, limit, search))

    def _shown(self, look: Any) -> Answer:
        try:
            peek: Peek = look()
        except BackendError as error:
            return _failed(error)
        messages = [self._message(message) for message in peek.messages]
        return document({"messages": messages, "more": peek.more, **({"next": peek.next} if peek.next else {})})

    def _message(self, peeked: Peeked) -> dict[str, Any]:
        body, encoding = readable(peeked.body)
        fields: dict[str, Any] = {
            "id": peeked.id.decode(),
            "timestamp": peeked.timestamp_ns,
            "attempts": peeked.attempts & 0xFFFF,
            "body": body,
            "encoding": encoding,
        }
        if peeked.headers:
            fields["headers"] = decode_headers(peeked.headers)
        if peeked.channel:
            fields["channel"] = peeked.channel
        if peeked.due is not None:
            fields["due"] = self._broker.timestamp_ns(peeked.due)
        if peeked.delivery is not None and peeked.consumer is not None:
            client = peeked.consumer.client
            fields["deadline"] = self._broker.timestamp_ns(peeked.delivery.deadline)
            fields["consumer"] = {
                "client_id": client.client_id,
                "hostname": client.hostname,
                "remote_address": client.remote_address,
            }
        return fields

    def _durable_channel(self, params: Any) -> Channel:
        channel = channel_named(self._broker, params)
        if channel.ephemeral or channel.topic.ephemeral:
            raise Refused(_EPHEMERAL_CHANNEL)
        return channel


def _position(channel: Channel, target: LogPosition) -> int:
    """Return the position of a time, within what is kept and released. Refused, BackendError."""
    topic = channel.topic
    earliest, latest = topic.reader.kept_from, topic.released
    if target.message_id:
        position = sequence_of(target.message_id)
        record = topic.log.find(position) if earliest <= position < latest else None
        if record is None or record[0].ids[record[1]] != target.message_id:
            raise Refused(_MESSAGE_NOT_FOUND)
        return position
    if target.word:
        return min(earliest, latest) if target.word == EARLIEST else latest
    return min(max(earliest, topic.reader.position_at(target.wall_ms)), latest)


def _is_after_all(target: LogPosition, wall_ms: int) -> bool:
    """Return whether a target names a place behind all that was published until now."""
    return target.word == LATEST or target.wall_ms > wall_ms


def _search(params: Parameters) -> Search:
    """Return what a request looks for. Refused."""
    after, text = params.get(_AFTER.name, ""), params.get(_CONTAINS.name, "")
    if after and not is_place(after):
        raise Refused(_INVALID_AFTER)
    if _CONTAINS.name in params and not 1 <= len(text.encode("utf-8", "surrogateescape")) <= MAX_TEXT:
        raise Refused(_INVALID_CONTAINS)
    return Search(after, text)


def _failed(error: Exception) -> Answer:
    _log.error("a channel could not be moved or looked into - {error}", error=str(error))
    return INTERNAL_ERROR
