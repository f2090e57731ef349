"""Query strings, read as nsqd reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

from twisted.logger import Logger

from nsqtw.http.responses import INVALID_REQUEST, Refused, failure
from nsqtw.options.texts import parse_duration

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_REMEMBERED = 256
_MAX_REMEMBERED = 1024
_MAX_DIGITS = 18

_log = Logger()


def parameters(query: bytes) -> Mapping[str, str]:
    """
    The parameters by name, of repeated ones the first. Bytes that are no UTF-8 are kept as surrogates. Refused, and
    logged, when there is a `;` or an escape that is none.
    """
    try:
        return _known(query) if len(query) <= _MAX_REMEMBERED else _parsed(query)
    except ValueError as error:
        _log.error("failed to parse request params - {error}", error=error)
        raise Refused(INVALID_REQUEST) from None


def read_parameters(query: bytes) -> Mapping[str, str]:
    """Like `parameters`, for a caller whose request is refused by another reader of the query. ValueError."""
    return _known(query) if len(query) <= _MAX_REMEMBERED else _parsed(query)


def whole_number(params: Mapping[str, str], name: str, default: int, lowest: int = 0) -> int:
    """A parameter that is a number, of at most 18 digits. Refused."""
    text = params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) >= lowest):
        raise Refused(failure(400, f"INVALID_{name.upper()}"))
    return int(text)


def duration(params: Mapping[str, str], name: str, default: float) -> float:
    """The seconds of a parameter that is a duration such as 30s. Refused."""
    if name not in params:
        return default
    try:
        seconds = parse_duration(params[name])
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise Refused(failure(400, f"INVALID_{name.upper()}"))
    return seconds


def truth(params: Mapping[str, str], name: str) -> bool:
    """A parameter that is `true` or `false`, which it is without being given. Refused."""
    text = params.get(name, "false")
    if text not in ("true", "false"):
        raise Refused(failure(400, f"INVALID_{name.upper()}"))
    return text == "true"


def is_escaped(text: bytes) -> bool:
    """Return whether every `%` in it starts an escape."""
    return _BAD_ESCAPE.search(text) is None


def _parsed(query: bytes) -> Mapping[str, str]:
    if b";" in query:
        raise ValueError("invalid semicolon separator in query")
    bad = _BAD_ESCAPE.search(query)
    if bad is not None:
        raise ValueError(f'invalid URL escape "{bad[0].decode("latin-1")}"')
    params: dict[str, str] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            params.setdefault(_unescaped(name), _unescaped(value))
    return MappingProxyType(params)


_known = lru_cache(_REMEMBERED)(_parsed)
"""A publisher sends the same query every time."""


def _unescaped(text: bytes) -> str:
    return unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8", "surrogateescape")
