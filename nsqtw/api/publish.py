"""
POST /pub and /mpub.

    /pub                  the body is one message
    /mpub                 LF-separated messages; empty lines are none, CR is data
    /mpub?binary=true     int32 count | count x (int32 size | size bytes)      big-endian; what follows is ignored
    ...&ids=true          answers {"ids": [...]}, of all messages in their order

A publish is answered when its messages are as safe as the broker's durability class says. The order of the checks is
nsqd's (nsqd specification 3.6, 3.7), with one difference: a chunked binary body whose messages do not end within
max-body-size is refused for its size, where nsqd continues to read as long as there are messages in it.

Performance: called once per request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.api.log_position import TIME, parse_time
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, CapReached, ClientError, Exiting
from nsqtw.http.endpoints import AN_OK, FAILED, JSON, TOPIC, Errors, Parameter, Section, endpoint
from nsqtw.http.query import parameters, truth
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
    text,
)
from nsqtw.names import is_valid_name
from nsqtw.options.topics import DURABILITIES
from nsqtw.options.types import whole_nanoseconds
from nsqtw.protocols.mpub import SIZE_BYTES, bytes_of_equal, check_count, check_size, equal_messages, unpack_size
from nsqtw.protocols.v2_codec import Limits
from nsqtw.rights import PUBLISH

_MSG_TOO_BIG = failure(413, "MSG_TOO_BIG")
_BODY_TOO_BIG = failure(413, "BODY_TOO_BIG")
_MSG_EMPTY = failure(400, "MSG_EMPTY")
_MISSING_TOPIC = failure(400, "MISSING_ARG_TOPIC")
_INVALID_TOPIC = failure(400, "INVALID_TOPIC")
_INVALID_DEFER = failure(400, "INVALID_DEFER")
_INVALID_DELIVER_AT = failure(400, "INVALID_DELIVER_AT")

_DEFER = Parameter("defer", {"type": "integer", "minimum": 0, "description": "milliseconds"})
_DELIVER_AT = Parameter("deliver_at", TIME)
_IDS = Parameter("ids", {"type": "boolean", "default": False, "description": "answer the ids of the messages"})
_IS_BINARY = Parameter("binary", {"type": "string", "enum": ["true", "false"]})
_NO_NEW_TOPIC: Errors = {**FAILED, 503: ["EXITING", "DRAINING", "TOO_MANY_TOPICS"]}

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
        optional=(_DEFER, _DELIVER_AT, _IDS),
        body="the message",
        max_body="max_msg_size",
        success=_OK_OR_IDS,
        errors={
            400: [
                *("INVALID_REQUEST", "MSG_EMPTY", "MISSING_ARG_TOPIC", "INVALID_TOPIC", "INVALID_DEFER"),
                *("INVALID_DELIVER_AT", "INVALID_IDS"),
            ],
            413: ["MSG_TOO_BIG"],
            **_NO_NEW_TOPIC,
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
        params = parameters(request.query)
        topic = self._topic(params.get("topic"))
        if len(params) == 1:
            self._put(request, topic, [body], 0)
        else:
            self._put_as_asked(request, topic, [body], self._delay_ms(params), params)
        return None

    @endpoint(
        "POST",
        "/mpub",
        "Publish messages",
        required=(TOPIC,),
        optional=(_IS_BINARY, _IDS),
        body="a message a line; with binary=true int32 count, and int32 size before each",
        max_body="max_body_size",
        success=_OK_OR_IDS,
        errors={
            400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC", "INVALID_IDS"],
            413: ["BODY_TOO_BIG", "MSG_TOO_BIG", "BAD_BODY", "BAD_MESSAGE"],
            **_NO_NEW_TOPIC,
        },
        needs=PUBLISH,
        too_big=_BODY_TOO_BIG,
        broken=None,
        logged=False,
        repeats=True,
    )
    def publish_many(self, request: HttpRequest) -> Answer | None:
        """POST /mpub"""
        params = parameters(request.query)
        topic = self._topic(params.get("topic"))
        if _is_binary(params.get("binary")):
            messages = binary_messages(request.body, self._limits)
        else:
            messages = text_messages(request.body, self._limits)
            if request.is_broken:
                return INVALID_REQUEST
        if not messages:
            return OK
        if "ids" in params:
            self._put_as_asked(request, topic, messages, 0, params)
        else:
            self._put(request, topic, messages, 0)
        return None

    def _put(self, request: HttpRequest, topic: Topic, messages: list[bytes], delay_ms: int) -> None:
        topic.put(
            messages, delay_ms, request.waiter(_TAKEN["memory" if topic.ephemeral else topic.durability], EXITING)
        )
        self._pump.on_read(request.size)

    def _put_as_asked(
        self, request: HttpRequest, topic: Topic, messages: list[bytes], delay_ms: int, params: Mapping[str, str]
    ) -> None:
        """Put messages, and answer their ids to who asks for them. Refused."""
        if not truth(params, _IDS.name):
            self._put(request, topic, messages, delay_ms)
            return
        answer = _AnswerWithIds(request, "memory" if topic.ephemeral else topic.durability)
        topic.put(messages, delay_ms, answer.told, assigned=answer.assigned)
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
        wall_ms = parse_time(text)
        if wall_ms is None or not is_alone:
            raise Refused(_INVALID_DELIVER_AT)
        delay_ns = wall_ms * _NS_PER_MS - self._broker.timestamp_ns(self._pump.now())
        if delay_ns > whole_nanoseconds(self._broker.options.longest_delay):
            raise Refused(_INVALID_DELIVER_AT)
        return max(0, -(-delay_ns // _NS_PER_MS))

    def _deferred_ms(self, text: str) -> int:
        match = _INT64.fullmatch(text)
        delay_ms = int(match[1] + match[2]) if match else -1
        delay_ns = _wrapped(delay_ms * _NS_PER_MS) if _wrapped(delay_ms) == delay_ms else -1
        if not 0 <= delay_ns <= whole_nanoseconds(self._broker.options.longest_delay):
            raise Refused(_INVALID_DEFER)
        return -(-delay_ns // _NS_PER_MS)


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
        self._request.answer_later(done if error is None else EXITING)


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
    except _EndsEarly as error:
        if len(body) > limits.max_body_size:
            raise Refused(_BODY_TOO_BIG) from None  # there may be more of it, which was not kept
        raise Refused(failure(413, error.code.removeprefix("E_"))) from None
    except ClientError as error:
        raise Refused(failure(413, error.code.removeprefix("E_"))) from None


class _EndsEarly(ClientError):
    """The body ends where there should be more."""


def _sized_messages(body: bytes, limits: Limits) -> list[bytes]:
    """Like `binary_messages`. ClientError."""
    if len(body) < SIZE_BYTES:
        raise _EndsEarly("E_BAD_BODY", "failed to read message count")
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
            raise _EndsEarly("E_BAD_MESSAGE", f"failed to read message({index}) body size")
        size = unpack_size(body, offset)[0]
        if not 0 < size <= max_size:
            check_size(index, size, max_size)
        offset = start + size
        if offset > end:
            raise _EndsEarly("E_BAD_MESSAGE", "failed to read message body")
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
