"""
Header fields of requests, and the checks that need nothing else.

    POST /pub?topic=clicks HTTP/1.1
    Host: broker:4151                    one, and a valid one; HTTP/1.0 needs none
    Connection: keep-alive               whether another request may follow
    Expect: 100-continue                 no other expectation is known

Those of browsers are in `http.browsers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from nsqtw.http.responses import BAD_HOST, NO_HOST, UNEXPECTED, Answer

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
