"""
Notices: what an action has done, shown once on the page that follows it.

The URL of that page has a random token. A notice is kept for a minute, in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_urlsafe

import attrs

KEPT_SECONDS = 60.0
MAX_NOTICES = 1000
_TOKEN_BYTES = 9


@attrs.frozen
class Notice:
    """A text, and the warnings that came with it."""

    text: str
    details: tuple[str, ...] = ()


class Notices:
    """The notices that were not shown yet, and those of the last minute."""

    def __init__(self) -> None:
        self._notices: dict[str, tuple[float, Notice]] = {}

    def add(self, text: str, details: Iterable[str], now: float) -> str:
        """Return the token of a new notice."""
        for token in [token for token, (at, _) in self._notices.items() if now - at > KEPT_SECONDS]:
            del self._notices[token]
        if len(self._notices) >= MAX_NOTICES:
            del self._notices[next(iter(self._notices))]
        token = token_urlsafe(_TOKEN_BYTES)
        lines = tuple(line for detail in details for line in detail.splitlines() if line)
        self._notices[token] = (now, Notice(text, lines))
        return token

    def find(self, token: str, now: float) -> Notice | None:
        """Return a notice; None when it is unknown or too old."""
        at, notice = self._notices.get(token, (now, None))
        return notice if now - at <= KEPT_SECONDS else None
