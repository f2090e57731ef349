"""
The headers of messages that are published over HTTP.

    POST /pub?topic=orders&ttl=60s&id=o-17 HTTP/1.1
    X-NSQ-Tenant: acme                  header "tenant"; every X-NSQ-<name> is one, with a lower-case name
    traceparent: 00-0af7...-01          header `traceparent`, and `tracestate` likewise, with --trace-headers

The headers of a request are those of each of its messages. With `headers=true`, each message of an /mpub has others
besides; all numbers are big-endian:

    "NSQH" | int32 count | count x (int32 headers size | headers | int32 size | body)

`headers` are encoded as in `nsqtw.message_headers`. An nsqd that does not know `headers` takes "NSQH" for an impossible
count, and refuses the body, so no headers become messages by mistake.

Performance: called once per request head that is not cached, and once per message of a body with headers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from nsqtw.errors import ClientError, InvalidHeaders
from nsqtw.http.query import duration, whole_number
from nsqtw.http.responses import Answer, Refused, failure
from nsqtw.message_headers import (
    ID,
    NO_HEADERS,
    PRIORITY,
    TRACEPARENT,
    TRACESTATE,
    TTL,
    are_plain,
    check_encoded,
    check_known,
    decode_headers,
    encode_headers,
)
from nsqtw.protocols.mpub import SIZE_BYTES, check_count, check_size, unpack_size
from nsqtw.protocols.v2_codec import Limits

MAGIC = b"NSQH"

_unpack_size = struct.Struct(">I").unpack_from
"""A size below 0 becomes a large one, which no body has."""
_PREFIX = b"X-Nsq-"
_OF_ANSWERS = (b"X-Nsq-Content-Type", b"nsq;")
"""The field that NSQ's own answers have, and how its value begins. A client that sends it back means no header."""
_TRACE_FIELDS = {name.title().encode(): name for name in (TRACEPARENT, TRACESTATE)}
_PARAMETERS = (TTL, ID, PRIORITY)
_NO_MAGIC = failure(
    413,
    "BAD_BODY",
    detail="A body with headers=true must begin with NSQH, the number of messages behind it, and have the headers of"
    " each message before it.",
)
_HEADERS_TOO_BIG = failure(
    413, "BODY_TOO_BIG", detail="The headers of all messages together are larger than --max-body-size."
)


class EndsEarly(ClientError):
    """The body ends where there should be more."""


def headers_of_request(fields: Mapping[bytes, bytes], params: Mapping[str, str], *, with_trace: bool) -> dict[str, str]:
    """
    Return the headers that a request gives to its messages. `with_trace`: traceparent and tracestate are headers.
    Refused.
    """
    found: dict[str, str] = {}
    for field, value in fields.items():
        if field.startswith(_PREFIX):
            if not (field == _OF_ANSWERS[0] and value.startswith(_OF_ANSWERS[1])):
                name = field[len(_PREFIX) :].decode("ascii").lower()
                found[name] = _text(name, value)
        elif with_trace and field in _TRACE_FIELDS:
            found.setdefault(_TRACE_FIELDS[field], _text(_TRACE_FIELDS[field], value))
    for name in _PARAMETERS:
        if name not in params:
            continue
        value_of_query = str(_ttl_ms(params)) if name == TTL else params[name]
        if found.setdefault(name, value_of_query) != value_of_query:
            raise Refused(_invalid(name, f"'{name}' and the field X-NSQ-{name.title()} have different values."))
        _check_parameter(name, value_of_query)
    return found


def encode(headers: Mapping[str, str]) -> bytes:
    """Encode the headers of a message. Refused."""
    try:
        check_known(headers)
        return encode_headers(headers)
    except InvalidHeaders as error:
        raise Refused(_invalid_header(str(error))) from None


def _invalid_header(why: str) -> Answer:
    """Return the answer to headers that a message cannot have; `why` is one line."""
    return _invalid("header", f"{why[:1].upper()}{why[1:]}.")


def messages_with_headers(body: bytes, limits: Limits, common: Mapping[str, str]) -> tuple[list[bytes], list[bytes]]:
    """
    Return the messages of a body with headers, and the encoded headers of each. `common` are headers of each message
    that has none of that name. ClientError, Refused.
    """
    if body[: len(MAGIC)] != MAGIC:
        raise Refused(_NO_MAGIC)
    if len(body) < len(MAGIC) + SIZE_BYTES:
        raise EndsEarly("E_BAD_BODY", "failed to read message count")
    count: int = unpack_size(body, len(MAGIC))[0]
    check_count(count, limits.max_body_size)
    offset = len(MAGIC) + SIZE_BYTES
    taken = None if common else _plain(body, offset, count, limits.max_msg_size)
    return taken or _one_by_one(body, offset, count, limits, common)


def _plain(body: bytes, offset: int, count: int, max_msg_size: int) -> tuple[list[bytes], list[bytes]] | None:
    """
    Return `count` messages and their headers from `offset` on, or None when they may be wrong: what is wrong is found
    one by one.
    """
    messages: list[bytes] = []
    headers: list[bytes] = []
    size: int
    try:
        for _ in range(count):
            start = offset + SIZE_BYTES
            (size,) = _unpack_size(body, offset)
            offset = start + size
            headers.append(body[start:offset])
            start = offset + SIZE_BYTES
            (size,) = _unpack_size(body, offset)
            if not 0 < size <= max_msg_size:
                return None
            offset = start + size
            messages.append(body[start:offset])
    except struct.error:
        return None
    return (messages, headers) if offset <= len(body) and are_plain(headers) else None


def _one_by_one(
    body: bytes, offset: int, count: int, limits: Limits, common: Mapping[str, str]
) -> tuple[list[bytes], list[bytes]]:
    """Return `count` messages and their headers from `offset` on. ClientError, Refused."""
    messages: list[bytes] = []
    headers: list[bytes] = []
    known: dict[bytes, bytes] = {}
    total = 0
    for index in range(count):
        raw, offset = _sized(body, offset, index)
        checked = known.get(raw)
        if checked is None:
            checked = known[raw] = _checked(raw, common, index)
        if common:
            total += len(checked)
            check_headers_bytes(total, limits)
        message, offset = _sized(body, offset, index)
        check_size(index, len(message), limits.max_msg_size)
        headers.append(checked)
        messages.append(message)
    return messages, headers


def check_headers_bytes(total: int, limits: Limits) -> None:
    """
    Check the size of the headers of all messages of a request: those in its head are stored with each message, and
    would make more of a body than may be sent. Refused.
    """
    if total > limits.max_body_size:
        raise Refused(_HEADERS_TOO_BIG)


def _sized(body: bytes, offset: int, index: int) -> tuple[bytes, int]:
    """Return the bytes behind their size at `offset`, and the offset behind them."""
    start = offset + SIZE_BYTES
    if start > len(body):
        raise EndsEarly("E_BAD_MESSAGE", f"failed to read message({index}) body size")
    size: int = unpack_size(body, offset)[0]
    if size < 0:
        check_size(index, size, 0)
    if start + size > len(body):
        raise EndsEarly("E_BAD_MESSAGE", f"failed to read message({index}) body")
    return body[start : start + size], start + size


def _checked(raw: bytes, common: Mapping[str, str], index: int) -> bytes:
    if not (raw or common):
        return NO_HEADERS
    try:
        check_encoded(raw)
        return encode_headers({**common, **decode_headers(raw)}) if common else raw
    except InvalidHeaders as error:
        raise Refused(_invalid_header(f"message {index}: {error}")) from None


def _ttl_ms(params: Mapping[str, str]) -> int:
    """Return the parameter `TTL` in milliseconds: a duration, or digits as milliseconds. Refused."""
    if params[TTL].isdigit():
        return whole_number(params, TTL, 0, lowest=1)
    return round(duration(params, TTL, 0.0) * 1000)


def _check_parameter(name: str, value: str) -> None:
    try:
        check_known({name: value})
        encode_headers({name: value})
    except InvalidHeaders:
        raise Refused(failure(400, f"INVALID_{name.upper()}")) from None


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Refused(_invalid_header(f"header {name!r} has a value that is not UTF-8")) from None


def _invalid(name: str, detail: str) -> Answer:
    return failure(400, f"INVALID_{name.upper()}", detail=detail)
