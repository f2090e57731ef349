"""
A message of a client on a WebSocket: a JSON object with one or more of

    "max_in_flight": 10                    messages that it may have without an answer
    "finish": ["5f1c0a9be2d4.3....", ...]
    "requeue": [...]                       "delay": 500 beside it: in so many milliseconds
    "touch": [...]
"""

from __future__ import annotations

import json
from typing import Any

from attrs import field, frozen
from wsproto.frame_protocol import CloseReason

from nsqtw.errors import NsqtwError

MAX_TEXT = 64 * 1024
"""Characters of the largest message; about a thousand tokens."""
_MAX_DELAY_MS = 2**53
_SHOWN = 32


class Broken(NsqtwError):
    """A client breaks the rules; its connection ends with `code`, and `reason` for people."""

    def __init__(self, code: CloseReason, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@frozen(kw_only=True)
class ClientMessage:
    """A message of a client, read."""

    max_in_flight: int | None = None
    finish: list[str] = field(factory=list)
    requeue: list[str] = field(factory=list)
    touch: list[str] = field(factory=list)
    delay_ms: int = 0


def read(text: str) -> ClientMessage:
    """Read a message. Broken."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Broken(CloseReason.INVALID_FRAME_PAYLOAD_DATA, "a message must be JSON") from None
    if not isinstance(value, dict):
        raise _unknown("a message must be a JSON object")
    fields: dict[str, Any] = {}
    for name, one in value.items():
        if name == "max_in_flight":
            fields[name] = _number(name, one)
        elif name == "delay":
            fields["delay_ms"] = _number(name, one)
        elif name in ("finish", "requeue", "touch"):
            fields[name] = _tokens(name, one)
        else:
            raise _unknown(f"unknown: {name[:_SHOWN]!r}")
    return ClientMessage(**fields)


def _number(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_DELAY_MS:
        raise _unknown(f"{name!r} must be a whole number of at least 0")
    return value


def _tokens(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(token, str) for token in value):
        raise _unknown(f"{name!r} must be a list of tokens")
    return value


def _unknown(reason: str) -> Broken:
    return Broken(CloseReason.POLICY_VIOLATION, reason)
