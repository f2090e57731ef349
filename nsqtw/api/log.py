"""
GET /v2/topic/log, /v2/topic/log/range and /v2/topic/log/lag: reads of a topic's log by position, without a channel and
without FIN.

    /v2/topic/log?topic=&from=&limit=&wait=&headers=     messages from a position on, in the format below
    /v2/topic/log/range?topic=&start=&end=               the positions between which the messages of a time are
    /v2/topic/log/lag?topic=&from=                       how many messages a reader at a position has not read, and
                                                         their age

A position is the sequence of a message, the lower 53 bits of its id. A reader starts anywhere and continues at `Next`.
Reads change nothing in the broker. `core.log_reader` says what may be read. With `wait`, a request that finds nothing
is answered when there is something, or after that many milliseconds.

The body of an answer is a sequence of sections without space between them:

    Content-Type: application/vnd.nsqtw.log; version=1
    X-Nsqtw-Next: 4503599627370506       the position to ask for next
    X-Nsqtw-End: 4503599627370506        one past the last message that may be read now: at Next there is no more yet
    X-Nsqtw-Earliest: 4503599627370496   the oldest message kept: what was asked for below it is gone
    X-Nsqtw-Messages: 10                 the number of messages in the body
    X-Nsqtw-Lost: 0                      the number of messages that the medium lost

    section, 48 bytes and the frames; all numbers are big-endian
    offset  0       4      8       16      20      24         32       40             44
            "NSQL"  kind   first   count   length  delay ms   due ms   CRC of frames  CRC of the 44 bytes before
            4       u32    u64     u32     u32     u64        u64      u32            u32            frames ...

    kind 1  `count` messages with the sequences from `first` on, as length bytes of frames, as a consumer gets them:
            int32 size | int32 2 | int64 timestamp (ns) | uint16 attempts, 1 | 16-byte id | body, size counting what
            follows it. Those that were published deferred have `delay`, and `due`, when they may be delivered, in ms of
            Unix time; for all others both are 0.
    kind 2  `count` messages from `first` on that were published, and cannot be read any more. length is 0.
    kind 3  Only with `headers=true`: the headers of the messages of the section behind it, which has the same `first`
            and `count`. Of each message int32 size | headers, encoded as in `message_headers`. Messages without such a
            section before them have no headers.

Messages that only one channel gets are left out: they are copies of messages that the log had before, or are no concern
of others. An answer may therefore be empty before the end of the log.

CRC is CRC-32 as in zlib. Sections ascend. Gaps between them never held a message, or the topic was emptied. A reader
skips kinds it does not know; a version with another layout has another content type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import chain

from attrs import evolve, frozen
from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.api.log_position import TIME, parse_time
from nsqtw.backends.checksum import crc32
from nsqtw.core.log_reader import Extract, LogReader
from nsqtw.core.segment import SEQUENCE_MASK, Segment
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from nsqtw.http.endpoints import FAILED, LOG_WORDS, TOPIC, Errors, Parameter, Section, endpoint, numbers
from nsqtw.http.names import durable_topic
from nsqtw.http.query import parameters, truth, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import INTERNAL_ERROR, Answer, Refused, binary, document, failure
from nsqtw.options.topics import EARLIEST, LATEST
from nsqtw.rights import SUBSCRIBE
from nsqtw.runtime.reactor import Reactor

LIMIT_BYTES = 1024 * 1024
MAX_BYTES = 4 * 1024 * 1024
MAX_WAIT_MS = 60_000
CONTENT_TYPE = b"application/vnd.nsqtw.log; version=1"

_INVALID_FROM = failure(400, "INVALID_FROM")
_INVALID_START = failure(400, "INVALID_START")
_INVALID_END = failure(400, "INVALID_END")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")

_FROM = Parameter("from", {"type": "string", "pattern": "^(earliest|latest|[0-9]{1,16})$", "default": "earliest"})
_LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "description": f"about so many bytes, {MAX_BYTES} at most"}
)
_WAIT = Parameter(
    "wait", {"type": "integer", "minimum": 0, "default": 0, "description": f"milliseconds, {MAX_WAIT_MS} at most"}
)
_HEADERS = Parameter(
    "headers", {"type": "boolean", "default": False, "description": "with the headers of the messages"}
)
_ERRORS: Errors = {404: ["TOPIC_NOT_FOUND"], **FAILED}

_log = Logger()


@frozen
class _Ask:
    """The parameters of a request for the log of `topic`."""

    topic: Topic
    start: int
    limit: int
    has_headers: bool


class LogReading(Section):
    """Shows the logs of a broker. A request needs what a subscriber does, for the topic without a channel."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump

    @endpoint(
        "GET",
        "/v2/topic/log",
        "A topic's log from a position on",
        required=(TOPIC,),
        optional=(_FROM, _LIMIT, _WAIT, _HEADERS),
        success={CONTENT_TYPE.decode(): {"type": "string", "format": "binary"}},
        headers=[f"X-Nsqtw-{name}" for name in ("Next", "End", "Earliest", "Messages", "Lost")],
        errors={400: [*LOG_WORDS, "INVALID_FROM", "INVALID_LIMIT", "INVALID_WAIT", "INVALID_HEADERS"], **_ERRORS},
        needs=SUBSCRIBE,
    )
    def read(self, request: HttpRequest) -> Answer | None:
        """GET /v2/topic/log"""
        params = parameters(request.query)
        topic = durable_topic(self._broker, params)
        limit = whole_number(params, "limit", LIMIT_BYTES, lowest=1)
        wait_ms = whole_number(params, "wait", 0)
        start = _start(topic.reader, params.get("from", EARLIEST))
        ask = _Ask(topic, start, min(limit, MAX_BYTES), truth(params, _HEADERS.name))
        extract = _extract(ask)
        if extract.parts or not wait_ms:
            return _answer(ask, extract)
        ask = evolve(ask, start=extract.stop)
        _Poll(self._pump.reactor, request, ask, min(wait_ms, MAX_WAIT_MS) / 1000)
        return None

    @endpoint(
        "GET",
        "/v2/topic/log/range",
        "The positions of the messages of a time",
        required=(TOPIC,),
        optional=(Parameter("start", TIME), Parameter("end", TIME)),
        success=numbers("first", "end", "earliest", "latest"),
        errors={400: [*LOG_WORDS, "INVALID_START", "INVALID_END"], **_ERRORS},
        needs=SUBSCRIBE,
    )
    def time_range(self, request: HttpRequest) -> Answer:
        """GET /v2/topic/log/range"""
        params = parameters(request.query)
        reader = durable_topic(self._broker, params).reader
        start_ms, end_ms = _time(params, "start", _INVALID_START), _time(params, "end", _INVALID_END)
        try:
            first = reader.kept_from if start_ms is None else reader.position_at(start_ms)
            end = reader.end if end_ms is None else max(first, reader.position_at(end_ms))
        except BackendError as error:
            raise _not_read(error) from error
        return document({"first": first, "end": end, "earliest": reader.kept_from, "latest": reader.end})

    @endpoint(
        "GET",
        "/v2/topic/log/lag",
        "The messages that a reader of the log has not read",
        required=(TOPIC,),
        optional=(_FROM,),
        success=numbers("messages", "age_ms", "earliest", "latest"),
        errors={400: [*LOG_WORDS, "INVALID_FROM"], **_ERRORS},
        needs=SUBSCRIBE,
    )
    def lag(self, request: HttpRequest) -> Answer:
        """GET /v2/topic/log/lag"""
        params = parameters(request.query)
        topic = durable_topic(self._broker, params)
        reader = topic.reader
        start = max(_start(reader, params.get("from", EARLIEST)), reader.kept_from)
        try:
            messages = reader.count(start, reader.end) if start < reader.end else 0
            oldest_ns = reader.oldest_ns(start) if messages else None
        except BackendError as error:
            raise _not_read(error) from error
        age_ns = 0 if oldest_ns is None else max(0, topic.context.age_ns(oldest_ns, self._pump.now()))
        positions = {"earliest": reader.kept_from, "latest": reader.end}
        return document({"messages": messages, "age_ms": age_ns // _NS_PER_MS} | positions)


class _Poll:
    """A request that waits until there is something to read for it, at most for `seconds`."""

    def __init__(self, reactor: Reactor, request: HttpRequest, ask: _Ask, seconds: float) -> None:
        self._request = request
        self._ask = ask
        self._timer = reactor.callLater(seconds, self._end)
        ask.topic.reader.watch(self._look)

    def _look(self) -> None:
        """There may be more now."""
        ask = self._ask
        if not self._request.is_patient:
            self._timer.cancel()
        elif ask.topic.exiting or _has_more(ask):
            self._timer.cancel()
            self._notify()
        else:
            ask.topic.reader.watch(self._look)

    def _end(self) -> None:
        self._ask.topic.reader.unwatch(self._look)
        self._notify()

    def _notify(self) -> None:
        try:
            answer = _TOPIC_NOT_FOUND if self._ask.topic.exiting else _answer(self._ask, _extract(self._ask))
        except Refused as refused:
            answer = refused.answer
        self._request.answer_later(answer)


def _has_more(ask: _Ask) -> bool:
    return ask.topic.reader.end > ask.start


def _extract(ask: _Ask) -> Extract:
    try:
        return ask.topic.reader.read(ask.start, ask.limit)
    except BackendError as error:
        raise _not_read(error) from error


def _not_read(error: BackendError) -> Refused:
    _log.error("failed to read a topic's log - {error}", error=error)
    return Refused(INTERNAL_ERROR)


def _answer(ask: _Ask, extract: Extract) -> Answer:
    reader = ask.topic.reader
    messages = sum(part.count for part in _shown(extract) if isinstance(part, Segment))
    lost = sum(len(part) for part in extract.parts if isinstance(part, range))
    numbers = {
        b"Next": extract.stop,
        b"End": reader.end,
        b"Earliest": reader.kept_from,
        b"Messages": messages,
        b"Lost": lost,
    }
    headers = [(b"X-Nsqtw-%s" % name, b"%d" % number) for name, number in numbers.items()]
    return binary(encode(extract, has_headers=ask.has_headers), CONTENT_TYPE, *headers)


def _start(reader: LogReader, text: str) -> int:
    """The position that `from` says. Refused."""
    if text == EARLIEST:
        return 0
    if text == LATEST:
        return reader.end
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > SEQUENCE_MASK:
        raise Refused(_INVALID_FROM)
    return int(text)


def _time(params: Mapping[str, str], name: str, error: Answer) -> int | None:
    """Parse a time in milliseconds of Unix time; None without one. Refused."""
    if name not in params:
        return None
    wall_ms = parse_time(params[name])
    if wall_ms is None:
        raise Refused(error)
    return wall_ms


MAGIC = b"NSQL"
MESSAGES, LOST, HEADERS = 1, 2, 3
SECTION = struct.Struct(">4sIQIIQQI")
CRC = struct.Struct(">I")
SIZE = struct.Struct(">i")

_NS_PER_MS = 10**6


def encode(extract: Extract, *, has_headers: bool = False) -> bytes:
    """The sections of a part of a log."""
    pieces: list[bytes] = []
    for part in _shown(extract):
        if isinstance(part, Segment):
            if has_headers and part.headers is not None:
                data = b"".join(chain.from_iterable((SIZE.pack(len(one)), one) for one in part.headers))
                pieces += (_head(HEADERS, part.first, part.count, 0, 0, data), data)
            frames = part.frames
            due_ms = part.timestamp_ns // _NS_PER_MS + part.delay_ms if part.delay_ms else 0
            pieces += (_head(MESSAGES, part.first, part.count, part.delay_ms, due_ms, frames), frames)
        else:
            pieces.append(_head(LOST, part.start, len(part), 0, 0, b""))
    return b"".join(pieces)


def _shown(extract: Extract) -> Iterator[Segment | range]:
    """Iterate over the parts of a log that a reader gets."""
    return (part for part in extract.parts if isinstance(part, range) or not part.channel)


def _head(kind: int, first: int, count: int, delay_ms: int, due_ms: int, data: bytes) -> bytes:
    head = SECTION.pack(MAGIC, kind, first, count, len(data), delay_ms, due_ms, crc32(data))
    return head + CRC.pack(crc32(head))
