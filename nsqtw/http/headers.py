"""
Header fields of requests, and the checks that need nothing else.

    POST /pub?topic=clicks HTTP/1.1
    Host: broker:4151                    one, and a valid one; HTTP/1.0 needs none
    Connection: keep-alive               whether another request may follow
    Expect: 100-continue                 no other expectation is known

A page on the internet can make the browser of an operator POST to a broker that only the operator reaches. Browsers
say so in fields that no client of NSQ sends, and such requests are refused:

    Origin: https://elsewhere.example          not the host that is asked
    Sec-Fetch-Site: cross-site

The owner of the page may point a name at this machine (DNS rebinding), and then both hosts are the same. So where only
this machine can connect, the page must also have a name of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from nsqtw.http.responses import BAD_HOST, NO_HOST, UNEXPECTED, Answer, failure
from nsqtw.options.addresses import is_loopback, split_host_port

_HOST = re.compile(rb"[A-Za-z0-9!$%&'()*+\-.:;=@\[\]_~]*")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_REMEMBERED = 256
_MAX_REMEMBERED = 256


def is_field(line: bytes | bytearray) -> bool:
    """Return whether a line is a header field."""
    return _FIELD.fullmatch(line) is not None


def read_field(line: bytes) -> tuple[bytes, bytes] | None:
    """Name, in its canonical spelling, and value of a header field; None when it is none."""
    return _known(line) if len(line) <= _MAX_REMEMBERED else _read(line)


def _read(line: bytes) -> tuple[bytes, bytes] | None:
    match = _FIELD.fullmatch(line)
    return (match[1].title(), match[2].rstrip(b" \t")) if match else None


_known = lru_cache(_REMEMBERED)(_read)
"""A client sends the same fields every time, and reading them takes longer than all else of a request's head."""


def error_in(fields: Mapping[bytes, bytes], version: bytes) -> Answer | None:
    """Return the response to invalid header fields; None when they are valid."""
    host = fields.get(b"Host")
    if host is None:
        if version == b"HTTP/1.1":
            return NO_HOST
    elif _HOST.fullmatch(host) is None:
        return BAD_HOST
    expected = fields.get(b"Expect")
    return UNEXPECTED if expected and b"100-continue" not in _words(expected) else None


def persists(field: bytes | None, version: bytes) -> bool:
    """Return whether another request may follow, by what the Connection field says."""
    words = _words(field) if field else []
    if version == b"HTTP/1.1":
        return b"close" not in words
    return b"keep-alive" in words and b"close" not in words


def _words(field: bytes) -> list[bytes]:
    return [word.strip() for word in field.lower().split(b",")]


_CROSS_ORIGIN = failure(403, "CROSS_ORIGIN")
_SAME = (b"same-origin", b"none")


def sent_by_a_page(fields: Mapping[bytes, bytes], *, is_local: bool) -> Answer | None:
    """The answer to a request that changes something and that a page of another site has made; None for others."""
    site = fields.get(b"Sec-Fetch-Site")
    if site is not None and site.lower() not in _SAME:
        return _CROSS_ORIGIN
    origin = fields.get(b"Origin")
    if origin is None:
        return None
    host = origin.lower().partition(b"://")[2]
    if not host or host != fields.get(b"Host", b"").lower():
        return _CROSS_ORIGIN
    return _CROSS_ORIGIN if is_local and not _is_of_this_machine(host.decode("latin-1")) else None


def _is_of_this_machine(host: str) -> bool:
    parts = split_host_port(host)
    return is_loopback(parts[0] if parts else host.strip("[]"))
