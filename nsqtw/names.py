"""The rule for topic and channel names, and how a name becomes a directory."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

MAX_NAME_BYTES = 64
EPHEMERAL = "#ephemeral"
_DEAD_LETTERS = ".dead"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """
    Return whether `name` may name a topic or a channel: 1 to 64 of the letters `.a-zA-Z0-9_-`, the suffix
    `#ephemeral` allowed and counted.
    """
    return len(name) <= MAX_NAME_BYTES and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    """Return whether what `name` names lives in memory only and ends with its last user."""
    return name.endswith(EPHEMERAL)


def dead_letter_name(topic: str) -> str:
    """Return the name of the dead-letter topic of the channels of a topic, unless their policies say another one."""
    if is_ephemeral(topic):
        return topic.removesuffix(EPHEMERAL) + _DEAD_LETTERS + EPHEMERAL
    return topic + _DEAD_LETTERS


def directory_name(name: str) -> str:
    """
    Return the name of the directory of a topic's files: percent-encoded, dots too, so that no topic can leave the data
    path or collide with a file of the broker (`..` and `positions.db` are legal NSQ names). A name has at most 64
    bytes, so this has at most 192, and 255 with the suffixes of backends. ValueError for an invalid topic name.
    """
    if not is_valid_name(name):
        raise ValueError(f"{name!r} is no name of a topic")
    return quote(name, safe="").replace(".", "%2E")


def name_of_directory(directory: str) -> str | None:
    """The topic kept in a directory of this name, or None when no topic has such a directory."""
    name = unquote(directory)
    return name if is_valid_name(name) and directory_name(name) == directory else None
