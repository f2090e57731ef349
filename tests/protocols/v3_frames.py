"""Frames of V3 as a client writes and reads them, from docs/protocol-v3.md and not from our codec."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

MAGIC = b"  V3"
NAMES = {
    **{16: "PING", 17: "PONG", 18: "CLOSE", 32: "WELCOME", 33: "CONFIRM", 34: "REJECT", 35: "SUBSCRIBED"},
    **{36: "UNSUBSCRIBED", 37: "DELIVER", 38: "FAILED", 39: "PAUSED", 40: "RESUMED", 41: "DRAINING", 42: "ERROR"},
}


class Answer(NamedTuple):
    """A frame of the broker."""

    name: str
    id: int
    flags: int
    payload: bytes


class Delivered(NamedTuple):
    """A message in a DELIVER."""

    id: int
    attempts: int
    headers: dict[str, str]
    body: bytes


def frame(kind: int, number: int, payload: bytes = b"", flags: int = 0, extension: bytes = b"") -> bytes:
    size = 8 + len(extension) + len(payload)
    return struct.pack(">IBBHI", size, kind, flags, len(extension), number) + extension + payload


def answers(written: bytes) -> list[Answer]:
    """Cut what the broker wrote, all of it, into frames."""
    found = []
    while written:
        size, kind, flags, extension, number = struct.unpack_from(">IBBHI", written)
        found.append(Answer(NAMES[kind], number, flags, written[12 + extension : 4 + size]))
        written = written[4 + size :]
    return found


def hello(secret: bytes = b"", **fields: Any) -> bytes:
    return frame(1, 0, struct.pack(">H", len(secret)) + secret + json.dumps(fields).encode())


def auth(secret: bytes, number: int = 0) -> bytes:
    return frame(2, number, secret)


def headers_of(names: dict[str, str]) -> bytes:
    out = b""
    for name in sorted(names):
        value = names[name].encode()
        out += bytes([len(name)]) + name.encode() + struct.pack(">H", len(value)) + value
    return out


def header_table(headers: Sequence[dict[str, str]]) -> bytes:
    parts = [headers_of(one) for one in headers]
    table = b"".join(struct.pack(">H", len(part)) + part for part in parts)
    return struct.pack(">I", len(table)) + table


def publish(
    number: int,
    bodies: Sequence[bytes],
    topic: bytes = b"t",
    headers: Sequence[dict[str, str]] | None = None,
    delays: Sequence[int] | None = None,
) -> bytes:
    payload, flags = bytes([len(topic)]) + topic, 0
    if headers is not None:
        payload, flags = payload + header_table(headers), 1
    if delays is not None:
        payload, flags = payload + struct.pack(f">I{len(delays)}I", len(delays), *delays), flags | 2
    return frame(3, number, payload + b"".join(struct.pack(">I", len(body)) + body for body in bodies), flags)


def subscribe(
    number: int, topic: bytes = b"t", channel: bytes = b"c", credit: int = 10, size: int = 0, timeout: int = 0
) -> bytes:
    names = bytes([len(topic)]) + topic + bytes([len(channel)]) + channel
    return frame(4, number, names + struct.pack(">IQI", credit, size, timeout))


def unsubscribe(number: int) -> bytes:
    return frame(5, number)


def credit(number: int, messages: int, size: int = 0, *, replaces: bool = False) -> bytes:
    return frame(6, number, struct.pack(">iq", messages, size), int(replaces))


def ranges(*given: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">QI", *one) for one in given)


def fin(number: int, *given: tuple[int, int]) -> bytes:
    return frame(7, number, ranges(*given))


def req(number: int, delay: int, *given: tuple[int, int]) -> bytes:
    return frame(8, number, struct.pack(">I", delay) + ranges(*given))


def nack(number: int, delay: int, reason: bytes, *given: tuple[int, int]) -> bytes:
    return frame(9, number, struct.pack(">IH", delay, len(reason)) + reason + ranges(*given))


def touch(number: int, *given: tuple[int, int]) -> bytes:
    return frame(10, number, ranges(*given))


def ping(number: int = 0) -> bytes:
    return frame(16, number)


CLOSE = frame(18, 0)


def confirmed(written: Sequence[Answer]) -> list[int]:
    """The correlation ids in all CONFIRMs."""
    found: list[int] = []
    for answer in written:
        if answer.name == "CONFIRM":
            for first, count in struct.iter_unpack(">II", answer.payload):
                found += range(first, first + count)
    return found


def confirmed_ids(written: Sequence[Answer]) -> dict[int, list[int]]:
    """The message ids of each correlation id, in CONFIRMs that have them."""
    found: dict[int, list[int]] = {}
    for answer in written:
        if answer.name == "CONFIRM":
            assert answer.flags == 1, answer
            for number, count, first, messages in struct.iter_unpack(">IIQI", answer.payload):
                assert count == 1, answer
                found.setdefault(number, []).extend(range(first, first + messages))
    return found


def error_of(payload: bytes) -> tuple[str, bytes]:
    """An error, and what is behind it."""
    code = payload[1 : 1 + payload[0]]
    (size,) = struct.unpack_from(">H", payload, 1 + payload[0])
    start = 3 + payload[0]
    return f"{code.decode()} {payload[start : start + size].decode()}", payload[start + size :]


def messages_of(answer: Answer) -> list[Delivered]:
    """The messages of a DELIVER."""
    payload, table = answer.payload, b""
    if answer.flags & 1:
        (size,) = struct.unpack_from(">I", payload)
        table, payload = payload[4 : 4 + size], payload[4 + size :]
    found = []
    while payload:
        size, kind, _, attempts, message_id = struct.unpack_from(">IIqH16s", payload)
        assert kind == 2
        headers = {}
        if table:
            (length,) = struct.unpack_from(">H", table)
            headers, table = decoded(table[2 : 2 + length]), table[2 + length :]
        found.append(Delivered(int(message_id, 16), attempts, headers, payload[34 : 4 + size]))
        payload = payload[4 + size :]
    assert not table
    return found


def decoded(headers: bytes) -> dict[str, str]:
    found = {}
    while headers:
        end = 1 + headers[0]
        (size,) = struct.unpack_from(">H", headers, end)
        found[headers[1:end].decode()] = headers[end + 2 : end + 2 + size].decode()
        headers = headers[end + 2 + size :]
    return found


def delivered(written: Sequence[Answer]) -> list[Delivered]:
    """The messages of all DELIVERs."""
    return [message for answer in written if answer.name == "DELIVER" for message in messages_of(answer)]
