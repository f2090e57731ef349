"""
What an auth server says (nsqd specification 1.11):

    {"ttl": 60, "identity": "mail", "identity_url": "https://...",
     "authorizations": [{"topic": "^orders$", "channels": [".*"], "permissions": ["subscribe", "publish"]}]}

Read as nsqd reads JSON: keys match in any case, what is null or not there is empty, and types are exact.
"""

from __future__ import annotations

import json
from typing import Any

from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError

MAX_ANSWER_BYTES = 256 * 1024
_HIGHEST_PORT = 65535
_LONGEST_IDENTITY = 1024


def grants_in(body: bytes) -> Grants:
    """The rights that an answer gives. AuthError when it is none."""
    fields = _object(_document(body), "the answer")
    ttl = _typed(fields.get("ttl"), int, 0, "ttl")
    listed = _typed(fields.get("authorizations"), list, [], "authorizations")
    grants = Grants(
        [_grant(entry) for entry in listed],
        identity=_typed(fields.get("identity"), str, "", "identity")[:_LONGEST_IDENTITY],
        identity_url=_typed(fields.get("identity_url"), str, "", "identity_url")[:_LONGEST_IDENTITY],
        ttl=float(min(ttl, 2**53)),
    )
    if ttl <= 0:
        raise AuthError(f"invalid TTL {str(ttl)[:20]} (must be >0)")
    return grants


def https_port_in(body: bytes) -> int:
    """The port that an answer 403 says HTTPS is on; 0 when it says none."""
    try:
        port = _typed(_object(_document(body), "the answer").get("https_port"), int, 0, "https_port")
    except AuthError:
        return 0
    return port if 0 < port <= _HIGHEST_PORT else 0


def _grant(entry: Any) -> Grant:
    fields = _object(entry, "an authorization")
    return Grant(
        _typed(fields.get("topic"), str, "", "topic"),
        _texts(fields.get("channels"), "channels"),
        _texts(fields.get("permissions"), "permissions"),
    )


def _document(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_constant=_no_value)
    except (ValueError, RecursionError):
        raise AuthError("the answer is no JSON") from None


def _no_value(text: str) -> None:
    raise ValueError(text)


def _object(value: Any, what: str) -> dict[str, Any]:
    return {key.lower(): one for key, one in _typed(value, dict, {}, what).items()}


def _texts(value: Any, what: str) -> list[str]:
    return [_typed(one, str, "", f"one of {what}") for one in _typed(value, list, [], what)]


def _typed(value: Any, kind: type, absent: Any, what: str) -> Any:
    if value is None:
        return absent
    if not isinstance(value, kind) or isinstance(value, bool):
        raise AuthError(f"{what} is no {kind.__name__}")
    return value
