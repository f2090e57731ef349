"""
A cache of request heads.

A publisher sends the same head with each of its messages, except for one number:

    POST /pub?topic=clicks HTTP/1.1 CRLF Host: broker:4151 CRLF Content-Length: 200 CRLF Accept: */* CRLF CRLF  body
    |-------------------------------- start ------------------------------------|   |-------- rest ---------|

Theory of operation. The bytes of a head that the parser (http.parser) has read and the server has accepted are kept
with their meaning. A chunk that has the same bytes, digits between them, and then as many bytes as the digits say, is
one whole request that needs no parser. Everything else is parsed: a new head, a body in parts or in chunks, requests in
a row. So the rules for heads are in one place, and the cache could only be wrong by taking bytes for others with
another meaning. Therefore acceptance must not depend on the number: heads that expect `100-continue` are not kept, and
the size of the body and the permissions are checked each time.

Parsing a head takes 5 us, finding it here 0.7; httptools, a parser in C, takes 0.9 for a head of two fields, without
route, version, host, origin, and the persistence of the connection.

Performance: called once per request.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqtw.http.routes import Route

MAX_HEADS = 1024
"""Heads that are kept; then all of them go, and those that are in use come back with their next requests."""
MAX_CACHED_BYTES = 2048
"""Bytes of a head that may be kept."""

_BEFORE_LENGTH = b"ength: "
"""The end of `start`. Clients do not agree on how the first letter is written."""
_BEFORE_BYTES = len(_BEFORE_LENGTH)
_LENGTH_FIELD = b"\r\ncontent-length: "
_MAX_DIGITS = 18


class CachedHead(NamedTuple):
    """The head of a request, and its route, with the handler for this head."""

    method: bytes
    target: bytes
    query: bytes
    """The part of `target` behind the `?`."""
    version: bytes
    fields: dict[bytes, bytes]
    route: Route


class KnownHeads:
    """At most MAX_HEADS heads."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, int, CachedHead]] = {}
        """By the bytes before the number: the bytes behind it, their length, and the head."""
        self._once: set[int] = set()
        """The hashes of heads that came once. Some clients never send the same head again."""

    def match(self, data: bytes) -> tuple[CachedHead, bytes] | None:
        """The head and the body, if `data` is one whole request behind a head that is known."""
        at = data.find(_BEFORE_LENGTH, 0, MAX_CACHED_BYTES) + _BEFORE_BYTES
        cached = self._known.get(data[:at])
        if cached is None:
            return None
        rest, rest_bytes, head = cached
        end = data.find(rest, at, at + _MAX_DIGITS + rest_bytes)
        digits = data[at:end]
        if end < 0 or not digits.isdigit():
            return None
        start = end + rest_bytes
        return (head, data[start:]) if start + int(digits) == len(data) else None

    def learn(self, data: bytes, head: CachedHead) -> None:
        """
        Keep `data`, which was read as `head` and means the same with any length, if it has one and comes for the second
        time.
        """
        if hash(data) not in self._once:
            _make_room(self._once)
            self._once.add(hash(data))
            return
        at = data.find(_BEFORE_LENGTH) + _BEFORE_BYTES
        end = data.find(b"\r", at, at + _MAX_DIGITS + 1)
        start = data[:at]
        # An empty line may precede a head, but only once.
        if start.startswith(head.method) and start.lower().endswith(_LENGTH_FIELD) and data[at:end].isdigit():
            _make_room(self._known)
            self._known[start] = (data[end:], len(data) - end, head)


def _make_room(entries: dict[bytes, tuple[bytes, int, CachedHead]] | set[int]) -> None:
    if len(entries) >= MAX_HEADS:
        entries.clear()
