"""Fields of the forms: what a form asks for, as the name of an action and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

Fields = Mapping[str, str]
Wish = tuple[str, Mapping[str, Any]]
"""The name of an action of `nsqtw.admin.actions`, and its arguments."""
EARLIEST, LATEST, TIME, MESSAGE = "earliest", "latest", "time", "message"
_UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}


class FormError(Exception):
    """A form cannot be read. The text says which field is wrong, and what it may be."""


def plain(name: str) -> Callable[[Fields], Wish]:
    """Return a reader of a form without fields."""
    return lambda fields: (name, {})


def create(fields: Fields) -> Wish:
    """Return the creation of a topic, or of a channel if one is named."""
    return ("create_channel" if fields.get("channel") else "create_topic", {})


def publish(fields: Fields) -> Wish:
    """Return the publishing of a message. FormError."""
    # A browser sends the lines of a text area with CR and LF.
    body = fields.get("body", "").replace("\r\n", "\n").encode()
    if not body:
        raise FormError("The message is empty: NSQ has no empty messages.")
    return "publish", {"body": body}


def seek(fields: Fields) -> Wish:
    """Return the move of a channel. FormError."""
    return "seek_channel", {"to": position(fields)}


def settings(fields: Fields) -> Wish:
    """Return the change of the durability or the retention of a topic. FormError."""
    if fields.get("what") == "durability":
        durability = fields.get("durability", "")
        if durability not in ("os", "fsync", "memory", "default"):
            raise FormError("Choose one of the durability classes.")
        return "set_durability", {"durability": durability}
    if fields.get("default"):
        return "set_retention", {"time": "default", "bytes": "default"}
    return "set_retention", {"time": _time_limit(fields), "bytes": _size_limit(fields)}


def _time_limit(fields: Fields) -> str:
    text, unit = fields.get("time", "").strip() or "0", fields.get("unit", "")
    if not (text.isascii() and text.isdigit() and len(text) < 7 and unit in _UNITS):
        raise FormError("The time must be a whole number of minutes, hours or days; 0 is no limit.")
    return f"{int(text) * _UNITS[unit]}s"


def _size_limit(fields: Fields) -> str:
    text = fields.get("megabytes", "").strip() or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormError("The size must be a whole number of megabytes; 0 is no limit.")
    return str(int(text) * 1_000_000)


def position(fields: Fields) -> str:
    """Return where a channel is to be moved, as nsqd reads it: a word, a message's id or a time. FormError."""
    kind = fields.get("kind", "")
    if kind in (EARLIEST, LATEST):
        return kind
    if kind == MESSAGE:
        text = fields.get("message", "").strip().lower()
        if len(text) == 16 and all(character in "0123456789abcdef" for character in text):
            return text
        raise FormError("The id of a message has 16 hexadecimal digits.")
    if kind == TIME:
        try:
            moment = datetime.fromisoformat(fields.get("time", "").strip())
        except ValueError as error:
            raise FormError("Enter a date and a time.") from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raise FormError("Choose where the channel starts again.")
