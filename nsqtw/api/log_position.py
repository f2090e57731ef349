"""
Positions in a topic's log, as users write them in a query.

    earliest, latest             the oldest message kept; the end of the log
    0a1b2c3d4e5f6071             the message with this id: always 16 hex digits
    1767225600, 1767225600.25    Unix time in seconds: up to 11 digits, perhaps a fraction
    1767225600000                Unix time in milliseconds: 12 to 15 digits
    2026-01-01T01:00:00+01:00    RFC 3339, always with `Z` or an offset; a `+` that became a space is accepted
"""

from __future__ import annotations

import re
from datetime import datetime

from attrs import frozen

from nsqtw.options.topics import EARLIEST, LATEST

TIME = {"type": "string", "description": "Unix time in seconds or milliseconds, or RFC 3339"}
"""The schema of a parameter that `parse_time` reads."""

_ID = re.compile(r"[0-9a-fA-F]{16}")
_SECONDS = re.compile(r"[0-9]{1,11}(?:\.([0-9]{1,9}))?")
_MILLISECONDS = re.compile(r"[0-9]{12,15}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[-+ ]\d\d:\d\d)", re.ASCII)
_SIGN_AT = -6


@frozen
class LogPosition:
    """One of the three: a word, the id of a message, or milliseconds of Unix time."""

    word: str = ""
    message_id: bytes = b""
    wall_ms: int = 0


def parse_log_position(text: str) -> LogPosition | None:
    """Parse a position; None when it is invalid."""
    if text in (EARLIEST, LATEST):
        return LogPosition(text)
    if _ID.fullmatch(text):
        return LogPosition(message_id=text.lower().encode())
    wall_ms = parse_time(text)
    return None if wall_ms is None else LogPosition(wall_ms=wall_ms)


def parse_time(text: str) -> int | None:
    """Milliseconds of Unix time; None when it is no time."""
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    seconds = _SECONDS.fullmatch(text)
    if seconds is not None:
        return int(text.partition(".")[0]) * 1000 + int(f"{seconds[1] or ''}000"[:3])
    if _DATE.fullmatch(text):
        if text[_SIGN_AT] == " ":
            text = f"{text[:_SIGN_AT]}+{text[_SIGN_AT + 1 :]}"
        try:
            return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    return None
