"""
Keys of messages: the values that `ordered_by` names.

Theory of operation. A key is bytes, not empty, and None for a message without one. The keys of a segment are found
together: a header in a cache of encoded headers, a value in a body by parsing it.

A key in a body is the JSON text of its value: `"a"`, `7`, `true`. A body that is an object without inner objects,
arrays and escapes is not parsed: there each quotation mark begins or ends a string, so one search finds a member. All
else is parsed. Both give the same key for the same value of valid JSON. null, objects and arrays are no keys.

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
_ESCAPED: Final = re.compile(r'["\\]')
_MEMBER_VALUE: Final = rb'\s*:\s*("[^"\x00-\x1f]*"|0|-?[1-9][0-9]*|true|false)\s*[,}]'


class MessageKeys(Protocol):
    """Finds keys."""

    def of_segment(self, segment: Segment) -> Keys | None:
        """Return the key of each message; None when no message has one."""

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """Return the key of one message."""


class HeaderKeys:
    """Keys that are the values of one header."""

    def __init__(self, name: str) -> None:
        self._start = bytes((len(name),)) + name.encode()
        self._cache: dict[bytes, Key | None] = {}

    def of_segment(self, segment: Segment) -> Keys | None:
        """MessageKeys API"""
        headers = segment.headers
        if headers is None:
            return None
        try:
            return [*map(self._cache.__getitem__, headers)]
        except KeyError:
            return [self._key(encoded) for encoded in headers]

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """MessageKeys API"""
        return self._key(segment.headers_of(index))

    def _key(self, encoded: bytes) -> Key | None:
        if encoded not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[encoded] = _value(encoded, self._start)
        return self._cache[encoded]


class BodyKeys:
    """Keys that are values in JSON bodies."""

    def __init__(self, path: tuple[str | int, ...]) -> None:
        self._path: tuple[Any, ...] = path
        self._name = b""
        self._member: re.Pattern[bytes] | None = None
        if len(path) == 1 and isinstance(path[0], str) and not _ESCAPED.search(path[0]):
            self._name = b'"' + path[0].encode() + b'"'
            self._member = re.compile(re.escape(self._name) + _MEMBER_VALUE)

    def of_segment(self, segment: Segment) -> Keys | None:
        """MessageKeys API"""
        frames, offsets, key_in = segment.frames, segment.offsets, self._key_in
        keys = [key_in(frames[start + BODY_AT : stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]
        return keys if any(keys) else None

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """MessageKeys API"""
        return self._key_in(segment.slice(index, index + 1)[BODY_AT:])

    def _key_in(self, body: bytes) -> Key | None:
        if (
            self._member is not None
            and body.count(b"{") == 1
            and b"[" not in body
            and b"\\" not in body
            and body.count(self._name) == 1
            and (found := self._member.search(body)) is not None
        ):
            return found[1]
        return self._parsed(body)

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
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def message_keys(place: KeyPlace) -> MessageKeys:
    """Return what finds the keys that `ordered_by` names."""
    return HeaderKeys(place.header) if place.header else BodyKeys(place.path)


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
