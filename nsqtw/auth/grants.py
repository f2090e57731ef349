"""
Permissions as lists of patterns, as nsqd's auth servers return them.

    Grant(topic="^orders", channels=(".*",), permissions=("publish", "subscribe"))

An action is allowed when some grant has the permission, its topic pattern is found anywhere in the topic, and one of
its channel patterns in the channel. For publishing the channel is empty; for the whole broker the topic is, too.

Patterns are matched by RE2, as in nsqd: it looks at each character once whatever the pattern is, where Python's own
expressions can take exponential time (`(a+)+$`). External patterns are limited all the same: their length, the memory
of their compiled form, and their number. Equal patterns are compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import attrs
import re2

from nsqtw.errors import AuthError
from nsqtw.rights import PERMISSIONS

MAX_PATTERN_BYTES = 1024
MAX_PATTERNS = 500
_SHOWN = 40
_COMPILED_BYTES = 64 * 1024
_REMEMBERED = 2048

_options = re2.Options()
_options.max_mem = _COMPILED_BYTES
_options.log_errors = False
_options.never_capture = True


@attrs.frozen
class Grant:
    """One line of rights."""

    topic: str
    channels: Sequence[str]
    permissions: Iterable[str]


class Grants:
    """The rights of one secret, see `nsqtw.rights.Rights`. AuthError when they are no rights."""

    def __init__(
        self, grants: Iterable[Grant], *, identity: str = "", identity_url: str = "", ttl: float | None = None
    ) -> None:
        self.identity = identity
        self.identity_url = identity_url
        self.ttl = ttl
        self._grants = [
            (frozenset(map(_known, grant.permissions)), grant.topic, tuple(grant.channels)) for grant in grants
        ]
        count = sum(1 + len(channels) for _, _, channels in self._grants)
        if count > MAX_PATTERNS:
            raise AuthError(f"{count} patterns, and {MAX_PATTERNS} are allowed")
        self._rules = [
            (permissions, _compiled(topic), [_compiled(channel) for channel in channels])
            for permissions, topic, channels in self._grants
        ]

    @property
    def count(self) -> int:
        """Rights API."""
        return len(self._rules)

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        """Rights API."""
        return any(
            permission in permissions
            and topics.search(topic) is not None
            and any(pattern.search(channel) is not None for pattern in channels)
            for permissions, topics, channels in self._rules
        )

    def __repr__(self) -> str:
        return f"<Grants of {self.identity!r}: {self._grants}>"


def _known(permission: str) -> str:
    if permission not in PERMISSIONS:
        raise AuthError(f"unknown permission {permission[:_SHOWN]!r}; there are {', '.join(PERMISSIONS)}")
    return permission


@lru_cache(_REMEMBERED)
def _compiled(pattern: str) -> Any:
    """A pattern to be searched for. AuthError."""
    if len(pattern.encode("utf-8", "replace")) > MAX_PATTERN_BYTES:
        raise AuthError(f"pattern {pattern[:_SHOWN]!r}... is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        return re2.compile(pattern, _options)
    except (re2.error, UnicodeError) as failure:
        text = failure.args[0] if failure.args else failure
        why = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise AuthError(f"pattern {pattern[:_SHOWN]!r} cannot be used: {why[: 2 * _SHOWN]}") from None
