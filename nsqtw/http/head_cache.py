"""
Heads of requests that were read before.

A publisher sends the same head with each of its messages, but for one number:

    POST /pub?topic=clicks HTTP/1.1 CRLF Host: broker:4151 CRLF Content-Length: 200 CRLF Accept: */* CRLF CRLF  body
    |-------------------------------- start ------------------------------------|   |-------- rest ---------|

Theory of operation. A head that was read in the usual way (http.connection), and found good, is kept as its bytes and
what they mean. A chunk that has the same bytes, digits between them, and then as many bytes as these say, is a whole
request, and nothing of it has to be read again. Everything else takes the usual way: a head that is new, a body that
comes in parts or in chunks, requests in a row. So the rules for heads stand in one place, and this one could only be
wrong by taking bytes for others that mean something else. Therefore what is found good must not depend on the number:
heads that expect `100-continue` are not kept, and whether the body is too long is asked each time, as is the door.

Reading a head anew takes 7 us, finding it here 0.7; httptools, a parser in C, takes 0.9 for a head of two fields and
leaves route, version, host, origin, and what the connection is to do to be found out.

This module is hot, once per request.
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
    """What a request says before its body, and where that leads."""

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
        """By what stands before the number: what stands behind it, its bytes, and what it means."""
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
        `data` was read as `head`, and means the same whatever length it says: to be kept, if it says one, and comes for
        the second time.
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
