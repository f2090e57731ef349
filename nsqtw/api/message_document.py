"""The JSON document of a message: the common part of all endpoints that show messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

MESSAGE_PROPERTIES: Final[dict[str, Any]] = {
    "id": {"type": "string"},
    "timestamp": {"type": "integer", "description": "nanoseconds"},
    "attempts": {"type": "integer"},
    "body": {"type": "string"},
    "encoding": {"type": "string", "enum": ["text", "base64"]},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
}
"""The JSON schemas of its fields. Messages without headers have no `headers`."""
MESSAGE_REQUIRED: Final = ("id", "timestamp", "attempts", "body", "encoding")


def readable(body: bytes) -> tuple[str, str]:
    """Return a body as text where it is UTF-8, else in base64, and which of the two it is."""
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"
