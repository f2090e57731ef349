"""
Keys of messages: the values that `ordered_by` names.

Theory of operation. A key is bytes, not empty, and None for a message without one. The keys of a segment are found
together: a header in a cache of encoded headers, a value in a body by parsing it.

A key in a body is the JSON text of its value: `"a"`, `7`, `true`. null, objects and arrays are no keys. Where the path
is the plain name of a member, most bodies are not parsed. A regular expression walks from string to string up to the
member and its value, and finds no other object and no array before it: so the member is one of the outermost object.
It is the last one of its name, as the parser takes it, if the name with its quotation marks occurs only once, and is
not written in another way; in a plain name only `\\u` could do that. Both are looked up in all bodies of a segment at
once. Where the search finds nothing, or a condition is not met, the body is parsed. Both give the same key for valid
JSON. A body that is no valid JSON may have a key, always the same, if it looks like JSON up to there.

Performance: called once per segment, the inner functions once per message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.options.message_keys import KeyPlace

Key = bytes
Keys = Sequence[Key | None]
"""A key for each message of a segment."""

_MAX_CACHED: Final = 65_536
_LENGTH_BYTES: Final = 2
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_SPACE: Final = rb"[ \t\n\r]*+"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OUTSIDE: Final = rb'[^"\[{]*+'
"""The text between two strings, without the begin of an array or object."""
_VALUE: Final = rb'("[^"\\\x00-\x1f]*+"|0|-?+[1-9][0-9]{0,18}+|true|false)'
_text_of: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Returns the JSON text of a value."""


class MessageKeys(Protocol):
    """Finds keys."""

    def of_segment(self, segment: Segment) -> Keys | None:
        """Return the key of each message; None when no message has one."""

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """Return the key of one message."""


class HeaderKeys:
    """Keys that are the values of one header."""

    def __init__(self, name: str) -> None:
        self._values = _Values(bytes((len(name),)) + name.encode())

    def of_segment(self, segment: Segment) -> Keys | None:
        """MessageKeys API"""
        headers = segment.headers
        return None if headers is None else [*map(self._values.__getitem__, headers)]

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """MessageKeys API"""
        return self._values[segment.headers_of(index)]


class _Values(dict[bytes, Key | None]):
    """The value of one header by the encoded headers. `start` is what the encoding of the header begins with."""

    def __init__(self, start: bytes) -> None:
        super().__init__()
        self._start = start

    def __missing__(self, encoded: bytes) -> Key | None:
        if len(self) >= _MAX_CACHED:
            self.clear()
        value = self[encoded] = _value(encoded, self._start)
        return value


class BodyKeys:
    """Keys that are values in JSON bodies."""

    def __init__(self, path: tuple[str | int, ...]) -> None:
        self._path: tuple[Any, ...] = path
        self._name = b""
        self._search: re.Pattern[bytes] | None = None
        if len(path) == 1 and isinstance(path[0], str) and _PLAIN_NAME.fullmatch(path[0]):
            self._name = b'"%s"' % path[0].encode()
            self._search = _search(self._name)

    def of_segment(self, segment: Segment) -> Keys | None:
        """MessageKeys API"""
        frames, offsets = segment.frames, segment.offsets
        bodies = [frames[start + BODY_AT : stop] for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]
        keys = self._searched(bodies) or [*map(self._key_in, bodies)]
        return keys if any(keys) else None

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """MessageKeys API"""
        return self._key_in(segment.slice(index, index + 1)[BODY_AT:])

    def _searched(self, bodies: list[bytes]) -> list[Key | None] | None:
        """Return the keys of some bodies, or None when one of them may have to be parsed."""
        search = self._search
        if search is None or not self._is_searchable(b"\n".join(bodies), len(bodies)):
            return None
        found = [*map(search.match, bodies)]
        if None in found:
            return None
        return [match[1] for match in found if match is not None]  # one name in each at least, so in none two

    def _key_in(self, body: bytes) -> Key | None:
        search = self._search
        found = search.match(body) if search is not None and self._is_searchable(body, 1) else None
        return self._parsed(body) if found is None else found[1]

    def _is_searchable(self, text: bytes, count: int) -> bool:
        """Return whether `count` bodies, in one text, have the name so often, and are UTF-8."""
        if text.count(self._name) != count or (b"\\" in text and b"\\u" in text):
            return False
        return text.isascii() or _is_utf8(text)

    def _parsed(self, body: bytes) -> Key | None:
        try:
            value: Any = json.loads(body)
            if not isinstance(value, dict):
                return None
            for step in self._path:
                if not isinstance(value, dict if isinstance(step, str) else list):
                    return None
                value = value[step]
        except (ValueError, LookupError, RecursionError):
            return None
        if not isinstance(value, str | int | float):  # bool is an int
            return None
        return _text_of(value).encode("utf-8", "surrogatepass")


def message_keys(place: KeyPlace) -> MessageKeys:
    """Return what finds the keys that `ordered_by` names."""
    return HeaderKeys(place.header) if place.header else BodyKeys(place.path)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _search(name: bytes) -> re.Pattern[bytes]:
    """Return what matches a body up to the value of the member `name`, in quotation marks, of the outermost object."""
    member = rb"(?!%s)%s%s" % (name, _STRING, _OUTSIDE)
    value = rb"%s%s:%s%s%s[,}]" % (name, _SPACE, _SPACE, _VALUE, _SPACE)
    return re.compile(rb"(?s)%s\{%s(?:%s)*+%s" % (_SPACE, _OUTSIDE, member, value))


def _value(encoded: bytes, start: bytes) -> bytes | None:
    """Return the value of the header whose encoding begins with `start`, its length and name."""
    if start not in encoded:
        return None
    offset, end = 0, len(encoded)
    while offset < end:
        value_at = offset + 1 + encoded[offset] + _LENGTH_BYTES
        length = int.from_bytes(encoded[value_at - _LENGTH_BYTES : value_at], "big")
        if encoded.startswith(start, offset):
            return encoded[value_at : value_at + length] or None
        offset = value_at + length
    return None
