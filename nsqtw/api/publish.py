"""
POST /pub and /mpub.

    /pub                  the body is one message
    /mpub                 LF-separated messages; empty lines are none, CR is data
    /mpub?binary=true     int32 count | count x (int32 size | size bytes)      big-endian; what follows is ignored
    ...&ids=true          answers {"ids": [...]}, of all messages in their order

Headers of messages, in the head of a request or with `headers=true` in the body, are described in `message_headers`.
They are read once for each head that is cached, and choose the handler of the request: one without headers costs
nothing more.

A publish is answered when its messages are as safe as the broker's durability class says. The order of the checks is
nsqd's, with one difference: a chunked binary body whose messages do not end within
max-body-size is refused for its size, where nsqd continues to read as long as there are messages in it.

Performance: called once per request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.api.log_position import TIME, parse_time
from nsqtw.api.message_headers import EndsEarly, check_headers_bytes, encode, headers_of_request, messages_with_headers
from nsqtw.core.packed_messages import PackedMessages
from nsqtw.core.segment import SEGMENT_BYTES
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, CapReached, ClientError, Exiting
from nsqtw.http.endpoints import AN_OK, CHANNEL, FAILED, JSON, TOPIC, Endpoint, Errors, Parameter, Section, endpoint
from nsqtw.http.query import parameters, read_parameters, truth
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import (
    EXITING,
    INVALID_REQUEST,
    OK,
    Answer,
    Refused,
    cap_reached,
    document,
    exiting,
    failure,
    not_stored,
    text,
)
from nsqtw.http.routes import Handler, HandlerOfHead
from nsqtw.message_headers import ID, PRIORITIES
from nsqtw.names import is_valid_name
from nsqtw.options.texts import show_duration, whole_nanoseconds
from nsqtw.options.topics import DURABILITIES
from nsqtw.protocols.mpub import (
    SIZE_BYTES,
    bytes_of_equal,
    check_count,
    check_size,
    equal_messages,
    packed_messages,
    unpack_size,
)
from nsqtw.protocols.v2_codec import Limits
from nsqtw.rights import PUBLISH

_MSG_TOO_BIG = failure(413, "MSG_TOO_BIG")
_BODY_TOO_BIG = failure(413, "BODY_TOO_BIG")
_MSG_EMPTY = failure(400, "MSG_EMPTY")
_MISSING_TOPIC = failure(400, "MISSING_ARG_TOPIC")
_INVALID_TOPIC = failure(400, "INVALID_TOPIC")
_INVALID_DEFER = failure(400, "INVALID_DEFER")
_INVALID_HEADERS = failure(400, "INVALID_HEADERS")
_ID_OF_MANY = failure(
    400, "INVALID_ID", detail="An id is that of one message: use /pub, or /mpub with headers=true and ids in the body."
)
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")
_INVALID_DELIVER_AT = failure(400, "INVALID_DELIVER_AT")
_DELIVER_AT_AND_DEFER = failure(
    400, "INVALID_DELIVER_AT", detail="'deliver_at' and 'defer' cannot be given together: leave one of them out."
)
_NO_DELIVER_AT = failure(
    400,
    "INVALID_DELIVER_AT",
    detail="/mpub takes 'deliver_at' with binary=true and headers=true only: use them, or /pub for each message.",
)

_DEFER = Parameter("defer", {"type": "integer", "minimum": 0, "description": "milliseconds"})
_DELIVER_AT = Parameter("deliver_at", TIME)
_WITH_HEADERS = "only with headers=true"
_DEFER_OF_MANY = Parameter("defer", {"type": "integer", "minimum": 0, "description": f"milliseconds; {_WITH_HEADERS}"})
_DELIVER_AT_OF_MANY = Parameter("deliver_at", {**TIME, "description": f"{TIME['description']}; {_WITH_HEADERS}"})
_IDS = Parameter("ids", {"type": "boolean", "default": False, "description": "answer the ids of the messages"})
_IS_BINARY = Parameter("binary", {"type": "string", "enum": ["true", "false"]})
_HAS_HEADERS = Parameter(
    "headers",
    {"type": "boolean", "default": False, "description": "each message has headers; only with binary=true"},
)
_TTL = Parameter("ttl", {"type": "string", "description": "time to live, as milliseconds or a duration"})
_ID = Parameter("id", {"type": "string", "minLength": 1, "description": "the publisher's id of the message"})
_PRIORITY = Parameter("priority", {"type": "string", "enum": list(PRIORITIES)})
_BAD_PUBLISH = (
    *("INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"),
    *("INVALID_HEADER", "INVALID_TTL", "INVALID_ID", "INVALID_PRIORITY", "INVALID_IDS"),
)
_NOT_TAKEN: Errors = {
    404: ["CHANNEL_NOT_FOUND"],
    429: ["CHANNEL_FULL"],
    **FAILED,
    501: ["HEADERS_NOT_STORED"],
    503: ["EXITING", "DRAINING", "TOO_MANY_TOPICS"],
}

_OK_OR_IDS = {
    **AN_OK,
    JSON: {
        "type": "object",
        "properties": {"ids": {"type": "array", "items": {"type": "string"}}},
        "required": ["ids"],
    },
}

_DURABILITY = {word: (b"X-Nsqtw-Durability", word.encode()) for word in DURABILITIES}
_TAKEN = {word: text(b"OK", field) for word, field in _DURABILITY.items()}
"""The values of `binary` by meaning."""

_NS_PER_MS = 10**6
_INT64 = re.compile(r"([+-]?)0*([0-9]{1,19})")
_BINARY = {"true": True, "1": True, "false": False, "0": False}

_log = Logger()


class Publishing(Section):
    """Publishes to the topics of a broker. No line for each publish in the log."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump
        self._limits = context.broker.options

    @endpoint(
        "POST",
        "/pub",
        "Publish a message",
        required=(TOPIC,),
        optional=(_DEFER, _DELIVER_AT, CHANNEL, _TTL, _ID, _PRIORITY, _IDS),
        body="the message",
        max_body="max_msg_size",
        success=_OK_OR_IDS,
        errors={
            400: [*_BAD_PUBLISH, "MSG_EMPTY", "INVALID_DEFER", "INVALID_DELIVER_AT"],
            413: ["MSG_TOO_BIG", "PUBLISH_TOO_BIG"],
            **_NOT_TAKEN,
        },
        needs=PUBLISH,
        too_big=_MSG_TOO_BIG,
        logged=False,
        repeats=True,
    )
    def publish(self, request: HttpRequest) -> Answer | None:
        """POST /pub"""
        if request.is_overlong:
            return _MSG_TOO_BIG
        body = request.body
        if not body:
            return _MSG_EMPTY
        self._put(request, self._topic(parameters(request.query).get("topic")), [body])
        return None

    def _publish_as_asked(self, request: HttpRequest, headers: Sequence[bytes] | None) -> Answer | None:
        """POST /pub with more than the topic. `headers` are the encoded ones of the message, if it has any."""
        if request.is_overlong:
            return _MSG_TOO_BIG
        if not request.body:
            return _MSG_EMPTY
        params = parameters(request.query)
        topic = self._topic(params.get("topic"))
        self._put_as_asked(request, topic, [request.body], params, headers, self._delay_ms(params))
        return None

    @endpoint(
        "POST",
        "/mpub",
        "Publish messages",
        required=(TOPIC,),
        optional=(_IS_BINARY, CHANNEL, _HAS_HEADERS, _DEFER_OF_MANY, _DELIVER_AT_OF_MANY, _TTL, _PRIORITY, _IDS),
        body="a message a line; with binary=true int32 count, and int32 size before each; with headers=true, too, NSQH,"
        " int32 count, and before each message its headers, with int32 size before both",
        max_body="max_body_size",
        success=_OK_OR_IDS,
        errors={
            400: [*_BAD_PUBLISH, "INVALID_HEADERS", "INVALID_DEFER", "INVALID_DELIVER_AT"],
            413: ["BODY_TOO_BIG", "MSG_TOO_BIG", "PUBLISH_TOO_BIG", "BAD_BODY", "BAD_MESSAGE"],
            **_NOT_TAKEN,
        },
        needs=PUBLISH,
        too_big=_BODY_TOO_BIG,
        broken=None,
        logged=False,
        repeats=True,
    )
    def publish_many(
        self, request: HttpRequest, headers: bytes | None = None, *, is_plain: bool = True
    ) -> Answer | None:
        """POST /mpub. `headers` are the encoded ones of each message, if they have any; then it is not `is_plain`."""
        params = parameters(request.query)
        topic = self._topic(params.get("topic"))
        if _is_binary(params.get("binary")):
            if is_plain and len(request.body) > SEGMENT_BYTES:
                packed = packed_messages(request.body, self._limits.max_body_size, self._limits.max_msg_size)
                if packed is not None:
                    self._put_packed(request, topic, packed)
                    return None
            messages = binary_messages(request.body, self._limits)
        else:
            messages = text_messages(request.body, self._limits)
            if request.is_broken:
                return INVALID_REQUEST
        if not messages:
            return OK
        if is_plain:
            self._put(request, topic, messages)
            return None
        if headers is not None and len(messages) > 1:
            check_headers_bytes(len(headers) * len(messages), self._limits)
        self._put_as_asked(request, topic, messages, params, None if headers is None else [headers] * len(messages))
        return None

    def _publish_with_headers(self, request: HttpRequest, common: Mapping[str, str]) -> Answer | None:
        """POST /mpub with headers=true. `common` are headers of every message."""
        params = parameters(request.query)
        topic = self._topic(params.get("topic"))
        if not _is_binary(params.get("binary")):
            return _INVALID_HEADERS
        limits = self._limits
        try:
            messages, headers = messages_with_headers(request.body[: limits.max_body_size], limits, common)
        except ClientError as error:
            raise _refused(error, request.body, limits) from None
        self._put_as_asked(request, topic, messages, params, headers if any(headers) else None, self._delay_ms(params))
        return None

    def handler_of_head(self, endpoint: Endpoint) -> HandlerOfHead:
        """Section API: a request that asks for more than to publish messages as they are has a handler of its own."""
        choose = self._for_one if endpoint.path == "/pub" else self._for_many

        def chosen(fields: Mapping[bytes, bytes], query: bytes) -> Handler | None:
            try:
                params = read_parameters(query)
            except ValueError:
                return None
            try:
                return choose(headers_of_request(fields, params, with_trace=self._limits.trace_headers), params)
            except Refused as refused:
                answer = refused.answer
                return lambda request: answer

        return chosen

    def _for_one(self, headers: Mapping[str, str], params: Mapping[str, str]) -> Handler | None:
        if not headers and params.keys() <= {TOPIC.name}:
            return None
        return partial(self._publish_as_asked, headers=[encode(headers)] if headers else None)

    def _for_many(self, headers: Mapping[str, str], params: Mapping[str, str]) -> Handler | None:
        if ID in headers:
            raise Refused(_ID_OF_MANY)
        encoded = encode(headers)
        if truth(params, _HAS_HEADERS.name):
            return partial(self._publish_with_headers, common=headers)
        if _DELIVER_AT.name in params:
            raise Refused(_NO_DELIVER_AT)
        if not headers and params.keys().isdisjoint((_IDS.name, CHANNEL.name)):
            return None
        return partial(self.publish_many, headers=encoded or None, is_plain=False)

    def _put(self, request: HttpRequest, topic: Topic, messages: list[bytes]) -> None:
        topic.put(messages, 0, request.waiter(_TAKEN["memory" if topic.ephemeral else topic.durability], EXITING))
        self._pump.on_read(request.size)

    def _put_packed(self, request: HttpRequest, topic: Topic, messages: PackedMessages) -> None:
        topic.put_packed(messages, request.waiter(_TAKEN["memory" if topic.ephemeral else topic.durability], EXITING))
        self._pump.on_read(request.size)

    def _put_as_asked(
        self,
        request: HttpRequest,
        topic: Topic,
        messages: list[bytes],
        params: Mapping[str, str],
        headers: Sequence[bytes] | None,
        delay_ms: int = 0,
    ) -> None:
        """Put messages with headers, or for one channel, and answer their ids if `params` say so. Refused."""
        channel = _only_channel(topic, params)
        durability = "memory" if topic.ephemeral else topic.durability
        if truth(params, _IDS.name):
            answer = _AnswerWithIds(request, durability)
            topic.put(messages, delay_ms, answer.told, headers, channel, answer.assigned)
        else:
            topic.put(messages, delay_ms, request.waiter(_TAKEN[durability], EXITING), headers, channel)
        self._pump.on_read(request.size)

    def _topic(self, name: str | None) -> Topic:
        """The topic, created when there is none, also when the request is refused for something else. Refused."""
        if name is None:
            raise Refused(_MISSING_TOPIC)
        topic = self._broker.topics.get(name)
        if topic is not None and self._broker.is_taking_publishes:
            return topic
        if topic is None and not is_valid_name(name):
            raise Refused(_INVALID_TOPIC)
        if not self._broker.is_taking_publishes:
            raise Refused(exiting(self._broker.refusal()))
        try:
            topic = self._broker.topic(name)
        except (Exiting, BackendError):
            raise Refused(EXITING) from None
        except CapReached as error:
            raise Refused(cap_reached(error)) from None
        self._pump.wake()
        return topic

    def _delay_ms(self, params: Mapping[str, str]) -> int:
        """The delay that a request asks for. Refused."""
        if "deliver_at" in params:
            return self._until(params["deliver_at"], is_alone="defer" not in params)
        return self._deferred_ms(params["defer"]) if "defer" in params else 0

    def _until(self, text: str, *, is_alone: bool) -> int:
        """The milliseconds from now until a wall-clock time, 0 for one in the past."""
        if not is_alone:
            raise Refused(_DELIVER_AT_AND_DEFER)
        wall_ms = parse_time(text)
        if wall_ms is None:
            raise Refused(_INVALID_DELIVER_AT)
        delay_ns = wall_ms * _NS_PER_MS - self._broker.timestamp_ns(self._pump.now())
        if delay_ns > whole_nanoseconds(self._broker.options.longest_delay):
            raise Refused(self._too_far_ahead(delay_ns))
        return max(0, -(-delay_ns // _NS_PER_MS))

    def _too_far_ahead(self, delay_ns: int) -> Answer:
        ahead = show_duration(float(delay_ns // 10**9))
        longest = show_duration(self._broker.options.longest_delay)
        return failure(
            400,
            "INVALID_DELIVER_AT",
            detail=f"'deliver_at' is {ahead} ahead, and at most {longest} is allowed: raise --max-defer-timeout.",
        )

    def _deferred_ms(self, text: str) -> int:
        match = _INT64.fullmatch(text)
        delay_ms = int(match[1] + match[2]) if match else -1
        delay_ns = _wrapped(delay_ms * _NS_PER_MS) if _wrapped(delay_ms) == delay_ms else -1
        if not 0 <= delay_ns <= whole_nanoseconds(self._broker.options.longest_delay):
            raise Refused(_INVALID_DEFER)
        return -(-delay_ns // _NS_PER_MS)


def _only_channel(topic: Topic, params: Mapping[str, str]) -> str:
    """Return the name of the only channel that is to have the messages; "" for all. Refused."""
    channel = params.get("channel", "")
    if "channel" in params and channel not in topic.channels:
        raise Refused(_CHANNEL_NOT_FOUND)
    return channel


class _AnswerWithIds:
    """The answer to a publish that wants to know the ids of its messages."""

    def __init__(self, request: HttpRequest, durability: str) -> None:
        self._request = request
        self._durability = durability
        self._ids: list[int] = []

    def assigned(self, ids: list[int]) -> None:
        self._ids = ids

    def told(self, error: Exception | None) -> None:
        ids = [f"{number:016x}" for number in self._ids]
        done = document({"ids": ids}, _DURABILITY[self._durability])
        self._request.answer_later(done if error is None else not_stored(error, EXITING))


def text_messages(body: bytes, limits: Limits) -> list[bytes]:
    """The lines that are not empty. Refused with what is met first: a line or the body too long."""
    lines = body[: limits.max_body_size].split(b"\n")
    is_overlong = len(body) > limits.max_body_size
    if is_overlong:
        lines.pop()
    messages = list(filter(None, lines))
    if messages and max(map(len, messages)) > limits.max_msg_size:
        raise Refused(_MSG_TOO_BIG)
    if is_overlong:
        raise Refused(_BODY_TOO_BIG)
    return messages


def binary_messages(body: bytes, limits: Limits) -> list[bytes]:
    """The messages of a body with sizes in it. Refused."""
    try:
        return _sized_messages(body[: limits.max_body_size], limits)
    except ClientError as error:
        raise _refused(error, body, limits) from None


def _refused(error: ClientError, body: bytes, limits: Limits) -> Refused:
    """Return the refusal of a binary body."""
    if isinstance(error, EndsEarly) and len(body) > limits.max_body_size:
        return Refused(_BODY_TOO_BIG)  # there may be more of it, which was not kept
    return Refused(failure(413, error.code.removeprefix("E_")))


def _sized_messages(body: bytes, limits: Limits) -> list[bytes]:
    """Like `binary_messages`. ClientError."""
    if len(body) < SIZE_BYTES:
        raise EndsEarly("E_BAD_BODY", "failed to read message count")
    count = unpack_size(body)[0]
    check_count(count, limits.max_body_size)
    messages = equal_messages(body, SIZE_BYTES, count, limits.max_msg_size) or []
    if len(messages) == count:
        return messages
    offset = SIZE_BYTES + bytes_of_equal(messages)
    end, max_size = len(body), limits.max_msg_size
    for index in range(len(messages), count):
        start = offset + SIZE_BYTES
        if start > end:
            raise EndsEarly("E_BAD_MESSAGE", f"failed to read message({index}) body size")
        size = unpack_size(body, offset)[0]
        if not 0 < size <= max_size:
            check_size(index, size, max_size)
        offset = start + size
        if offset > end:
            raise EndsEarly("E_BAD_MESSAGE", "failed to read message body")
        messages.append(body[start:offset])
    return messages


def _wrapped(value: int) -> int:
    """Return the value modulo 64 bits, as nsqd does with a delay."""
    return (value + 2**63) % 2**64 - 2**63


def _is_binary(value: str | None) -> bool:
    if value is None:
        return False
    if value not in _BINARY:
        _log.warn("deprecated value '{value}' used for /mpub binary param", value=value)
    return _BINARY.get(value, True)
