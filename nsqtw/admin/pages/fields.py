"""Fields of the forms: what a form asks for, as the name of an action and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from nsqtw.errors import FormError
from nsqtw.options.topics import DURABILITIES

Fields = Mapping[str, str]
ActionCall = tuple[str, Mapping[str, Any]]
"""The name of an action of `nsqtw.admin.actions`, and its arguments."""
EARLIEST, LATEST, TIME, MESSAGE = "earliest", "latest", "time", "message"
UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}
"""The units of a time, in seconds."""
BYTES_IN_MEGABYTE = 1 << 20
_RATE_DIGITS = 10
SET, UNSET = "set.", "unset."
"""What the fields of a policy begin with, before the name of the setting."""
NODE_DEFAULT = "default"
"""The setting of a topic that leaves the decision to the options of each node."""


def without_fields(name: str) -> Callable[[Fields], ActionCall]:
    """Return a reader of a form without fields."""
    return lambda fields: (name, {})


def create(fields: Fields) -> ActionCall:
    """Return the creation of a topic, or of a channel if one is named."""
    return ("create_channel" if fields.get("channel") else "create_topic", {})


def publish(fields: Fields) -> ActionCall:
    """Return the publishing of a message. FormError."""
    # A browser sends the lines of a text area with CR and LF.
    body = fields.get("body", "").replace("\r\n", "\n").encode()
    if not body:
        raise FormError("The message is empty: NSQ has no empty messages.")
    return "publish", {"body": body, "headers": _headers(fields.get("headers", ""))}


def replace(fields: Fields) -> ActionCall:
    """Return the publishing of a message in place of a dead letter. FormError."""
    _, published = publish(fields)
    return "replace_message", {**published, "letter_topic": fields.get("letter_topic", "")}


def _headers(text: str) -> dict[str, str]:
    """Return the headers of a text area, one a line. FormError."""
    headers: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not (name.strip() and colon):
            raise FormError(f"The header {line.strip()!r} must be written as name: value.")
        if headers.setdefault(name.strip().lower(), value.strip()) != value.strip():
            raise FormError(f"The header {name.strip()!r} is there twice.")
    return headers


def seek(fields: Fields) -> ActionCall:
    """Return the move of a channel. FormError."""
    return "seek_channel", {"to": position(fields)}


def redrive(fields: Fields) -> ActionCall:
    """Return the redrive of a channel. FormError."""
    text = fields.get("rate", "").strip() or "0"
    if not (text.isascii() and text.isdigit() and len(text) < _RATE_DIGITS):
        raise FormError("The rate must be a whole number of messages a second; 0 is no limit.")
    return "redrive_channel", {"rate": text} if int(text) else {}


def settings(fields: Fields) -> ActionCall:
    """Return the change of the durability or the retention of a topic. FormError."""
    if fields.get("what") == "durability":
        durability = fields.get("durability", "")
        if durability not in (*DURABILITIES, NODE_DEFAULT):
            raise FormError("Choose one of the durability classes.")
        return "set_durability", {"durability": durability}
    if fields.get("default"):
        return "set_retention", {"time": NODE_DEFAULT, "bytes": NODE_DEFAULT}
    return "set_retention", {"time": _time_limit(fields), "bytes": _size_limit(fields)}


def _time_limit(fields: Fields) -> str:
    text, unit = fields.get("time", "").strip() or "0", fields.get("unit", "")
    if not (text.isascii() and text.isdigit() and len(text) < 7 and unit in UNITS):
        raise FormError("The time must be a whole number of minutes, hours or days; 0 is no limit.")
    return f"{int(text) * UNITS[unit]}s"


def _size_limit(fields: Fields) -> str:
    text = fields.get("megabytes", "").strip() or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormError("The size must be a whole number of megabytes; 0 is no limit.")
    return str(int(text) * BYTES_IN_MEGABYTE)


def policy(name: str) -> Callable[[Fields], ActionCall]:
    """Return a reader of the form of a policy, which raises FormError."""

    def read(fields: Fields) -> ActionCall:
        settings = changed_settings(fields)
        if not settings:
            raise FormError("Enter a new value, or choose a setting to unset.")
        return name, {"settings": settings, "nodes": fields.get("nodes", "").split()}

    return read


def changed_settings(fields: Fields) -> dict[str, str | None]:
    """Return the settings that a form changes, None for one to unset. Their values are for nsqd to read. FormError."""
    changed: dict[str, str | None] = {
        field.removeprefix(SET): text.strip()
        for field, text in fields.items()
        if field.startswith(SET) and text.strip()
    }
    for field in fields:
        name = field.removeprefix(UNSET)
        if field.startswith(UNSET):
            if name in changed:
                raise FormError(f"{name} is to be set and to be unset: choose one.")
            changed[name] = None
    return changed


def position(fields: Fields) -> str:
    """Return the new position of a channel, as nsqd reads it: a word, a message's id or a time. FormError."""
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
