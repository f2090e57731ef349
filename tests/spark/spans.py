"""Messages as nsqd sends them to a consumer, and spans taken apart."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from pyspark_nsq.channel.span import Span

_FRAME = struct.Struct(">iIqH16s")
_MESSAGE = 2


class Row(NamedTuple):
    """A message as a stream's row has it."""

    seq: int
    nsqd: str
    id: bytes
    timestamp_ns: int
    attempts: int
    body: bytes


def frame(message_id: bytes, body: bytes, timestamp_ns: int = 0, attempts: int = 1) -> bytes:
    """One message."""
    return _FRAME.pack(_FRAME.size - 4 + len(body), _MESSAGE, timestamp_ns, attempts, message_id) + body


def span_of(nsqd: str, frames: Iterable[bytes]) -> Span:
    """As a connection to the nsqd would have it."""
    some = list(frames)
    return Span(nsqd, len(some), b"".join(some))


def rows_of(spans: Iterable[Span]) -> list[Row]:
    """The messages one by one, read without the code under test."""
    rows = []
    for span in spans:
        at = 0
        for number in range(span.count):
            size, kind, timestamp_ns, attempts, message_id = _FRAME.unpack_from(span.frames, at)
            assert kind == _MESSAGE
            body = span.frames[at + _FRAME.size : at + 4 + size]
            rows.append(Row(span.first + number, span.nsqd, message_id, timestamp_ns, attempts, body))
            at += 4 + size
        assert at == len(span.frames)
    return rows


def bodies_of(spans: Iterable[Span]) -> list[bytes]:
    return [row.body for row in rows_of(spans)]
