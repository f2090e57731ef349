"""
Mistakes made on purpose: what a hasty change to nsqtw might do. The engine must find each of them, or it would find
nothing else either.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote_to_bytes

from attrs import frozen

from nsqtw.api import publish as http_publish
from nsqtw.api.subscribe.subscription import Subscription
from nsqtw.backends.disk import scan as disk_scan
from nsqtw.backends.disk.format import Head
from nsqtw.daemon import logs
from nsqtw.http import query as http_query
from nsqtw.http import routes as http_routing
from nsqtw.lookupd import snapshot
from nsqtw.lookupd.v1 import V1Session
from nsqtw.protocols import identify
from nsqtw.protocols.v2_codec import V2Codec


@frozen
class Mistake:
    """What `replacement` is in the place of `what` in `where`, and the words of the finding by `target`, a pattern."""

    name: str
    target: str
    where: Any
    what: str
    replacement: Any
    words: str

    def made(self) -> Any:
        """Make it, as long as the context lasts."""
        return patch.object(self.where, self.what, self.replacement)


def _without_a_bound(self: Any) -> list[bytes] | None:
    """Of a PUB: the size that the client says is believed."""
    if not self._need(4, "E_BAD_MESSAGE", "message body size"):
        return None
    (size,) = struct.unpack_from(">I", self._buffer, self._offset)
    if not self._need(4 + size, "E_BAD_MESSAGE", "message body"):
        return None
    self._offset += 4
    return [self._take(size)]


def _that_loses_a_byte(self: Any) -> None:
    """Of a buffer that is joined: when there is a rest, the newest piece is cut."""
    rest = self._buffer[self._offset :]
    pieces = list(self._pieces)
    if rest and len(rest) % 7 == 3:
        pieces[-1] = pieces[-1][:-1]
    self._buffer, self._offset = b"".join((rest, *pieces)), 0
    self._pieces.clear()
    self._pieces_bytes = 0


def _that_loops(body: bytes, limits: Any) -> list[bytes]:
    """Binary messages: without a look at the end of the body, a message that is not there is read again and again."""
    count = int.from_bytes(body[:4], "big") & 0x7FFFFFFF
    messages: list[bytes] = []
    offset = 4
    while len(messages) < count:
        size = int.from_bytes(body[offset : offset + 4], "big")
        if size:
            messages.append(body[offset + 4 : offset + 4 + size])
            offset += 4 + size
    return messages


def _that_wants_values(query: bytes) -> dict[str, str]:
    """A query in which each name has a value."""
    pairs = [pair.split(b"=") for pair in query.split(b"&")] if query else []
    return {unquote_to_bytes(pair[0]).decode(): unquote_to_bytes(pair[1]).decode() for pair in pairs}


def _as_it_is(text: bytes, safe: str) -> str:
    """A path that is not quoted."""
    return text.decode("latin-1")


def _that_takes_much(body: bytes) -> dict[str, Any]:
    """JSON, with room for a thousand times its size."""
    room = bytearray(body * 3_000)
    fields = _decode(body)
    return fields if room else {}


def _that_knows_only_json_errors(body: bytes) -> dict[str, Any]:
    """JSON: everything is an object, and every number fits."""
    try:
        document = json.loads(body)
    except json.JSONDecodeError:
        return _decode(body)
    return _decode(json.dumps({**document}).encode())


def _without_a_checksum(self: Any, position: int, head: Head) -> bytes | None:
    """A payload as it stands there."""
    block, offset = self._bytes_at(position, head.size)
    payload = block[offset + head.size - head.length : offset + head.size]
    return bytes(payload) if len(payload) == head.length else None


def _that_forgets_what_was_before(self: Any, chunk: bytes, now: int) -> None:
    """Every chunk begins with a command."""
    self._buffer = b""
    _receive_data(self, chunk, now)


def _that_forgets_what_is_in_flight(self: Any, now: float) -> None:
    """The end of a subscription as that of a V2 connection."""
    messages, self._messages = self._messages, None
    if messages is not None:
        self._left(self)
        messages.channel.leave(self._consumer)


_decode = identify.decode
_receive_data = V1Session.receive_data
MISTAKES: Sequence[Mistake] = (
    Mistake("a codec that forgets a bound", "codec", V2Codec, "_read_message", _without_a_bound, "beyond the limits"),
    Mistake("a codec that loses a byte", "codec", V2Codec, "_join", _that_loses_a_byte, "whole it"),
    Mistake("a parser that loops", "http", http_publish, "binary_messages", _that_loops, "Endless"),
    Mistake(
        "a subscription that forgets",
        "websocket",
        Subscription,
        "leave",
        _that_forgets_what_is_in_flight,
        "without a client",
    ),
    Mistake("a query of pairs only", "http", http_query, "_known", _that_wants_values, "IndexError"),
    Mistake("a header that is not escaped", "http", http_routing, "quote", _as_it_is, "no answer|unknown header"),
    Mistake("a log that is not escaped", "http", logs, "one_line", lambda text: text, "no line of plain text"),
    Mistake("JSON that takes much memory", "identify", identify, "decode", _that_takes_much, "grew|bytes of memory"),
    Mistake("JSON that is believed", "identify", identify, "decode", _that_knows_only_json_errors, "Error:"),
    Mistake(
        "a record without a checksum",
        "disk",
        disk_scan.Scan,
        "_payload_at",
        _without_a_checksum,
        r"nobody sent|struct\.error",
    ),
    Mistake("a session that forgets", "lookupd", V1Session, "receive_data", _that_forgets_what_was_before, "in pieces"),
    Mistake("a snapshot that is believed", "registrations", snapshot, "_object", lambda value: value, "Error"),
)
