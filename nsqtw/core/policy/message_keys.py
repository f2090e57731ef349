"""
Keys of messages: the values that `ordered_by` names.

Theory of operation. A key is bytes, not empty, and None for a message without one. The keys of a segment are found
together: a header in a cache of encoded headers, a value in a body by a search.

A key in a body is the JSON text of its value: `"a"`, `7`, `true`. null, objects and arrays are no keys. Where the path
has plain names only, most bodies are not parsed. A regular expression walks from string to string, past objects and
arrays that it needs not look into, down to the value. If a name occurs several times in an object, the last one counts,
as the parser has it. So there are two searches. The long one walks on from the value to the end of the body. The short
one ends at the value, or at the end of the object that it is in if the path has several steps. It is right if the names
before that occur only once, with their quotation marks, and are not written in another way; in a plain name only `\\u`
could do that. Both are looked up in all bodies of a segment at once. Where the long search finds nothing, too, the body
is parsed. All three give the same key for valid JSON. A body that is no valid JSON may have a key, always the same, if
it looks like JSON up to there.

Performance: called once per segment, the inner functions once per message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.options.message_keys import KeyPlace

Key = bytes
Keys = Sequence[Key | None]
"""A key for each message of a segment."""

_MAX_CACHED: Final = 65_536
_LENGTH_BYTES: Final = 2
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAX_STEPS: Final = 8
"""Steps of a path that is searched: each takes 1.5 ms when the policy is switched on."""
_MAX_NESTED: Final = 4
"""Levels of objects and arrays that a search passes."""
_SPACE: Final = rb"[ \t\n\r]*+"
_STRING: Final = rb'"(?>[^"]*+(?<!\\)"|[^"\\]*+(?:\\.[^"\\]*+)*+")'
_PLAIN_STRING: Final = rb'(?>%s(?!%s:)|"[^"\\]*+(?:\\[^u][^"\\]*+)*+")' % (_STRING, _SPACE)
"""A string that is no name in which a character is written as its number."""
_OUTSIDE: Final = rb'[^"\[\]{}]*+'
"""The text between two strings, objects and arrays."""
_VALUE: Final = rb'("[^"\\\x00-\x1f]*+"|0|-?+[1-9][0-9]{0,18}+|true|false)' + _SPACE
_text_of: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Returns the JSON text of a value."""


class MessageKeys(Protocol):
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
        names = [step for step in path if isinstance(step, str)]
        self._unique = [b'"%s"' % step.encode() for step in path[:-1] or path if isinstance(step, str)]
        """The names that the short search needs once in a body."""
        self._short: re.Pattern[bytes] | None = None
        self._long: re.Pattern[bytes] | None = None
        if len(path) <= _MAX_STEPS and all(map(_PLAIN_NAME.fullmatch, names)):
            nested = _nested(_MAX_NESTED)
            self._short = re.compile(rb"(?s)" + _SPACE + _step(path, nested, walked=1 if len(path) > 1 else 0))
            self._long = re.compile(rb"(?s)" + _SPACE + _step(path, nested, walked=len(path)) + rb"\Z")

    def of_segment(self, segment: Segment) -> Keys | None:
        """MessageKeys API"""
        offsets = segment.offsets
        keys = self._keys_in(segment.frames, [start + BODY_AT for start in offsets[:-1]], offsets[1:])
        return keys if any(keys) else None

    def of_message(self, segment: Segment, index: int) -> Key | None:
        """MessageKeys API"""
        body = segment.slice(index, index + 1)[BODY_AT:]
        return self._keys_in(body, (0,), (len(body),))[0]

    def _keys_in(self, text: bytes, starts: Sequence[int], stops: Sequence[int]) -> list[Key | None]:
        """Return the keys of bodies, which are parts of a text."""
        short, long = self._short, self._long
        if short is None or long is None:
            return [self._parsed(text[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        if self._is_plain(text, len(starts)):
            found = [*map(short.match, repeat(text), starts, stops)]
            if None not in found:  # each name at least once in each, so not twice
                return [match[1] for match in found if match is not None]
        found = [*map(long.match, repeat(text), starts, stops)]
        return [
            self._key_in(text[start:stop]) if match is None else match[1]
            for match, start, stop in zip(found, starts, stops, strict=True)
        ]

    def _key_in(self, body: bytes) -> Key | None:
        """Return the key of a body in which the long search finds nothing."""
        found = self._short.match(body) if self._short is not None and self._is_plain(body, 1) else None
        return self._parsed(body) if found is None else found[1]

    def _is_plain(self, text: bytes, count: int) -> bool:
        """Return whether the names occur so often, and no character is written as its number."""
        if b"\\" in text and b"\\u" in text:  # one byte is looked for forty times as fast as two
            return False
        return all([text.count(name) == count for name in self._unique])

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


def _nested(levels: int) -> bytes:
    """Return what matches an object or array with at most so many levels."""
    inner = rb'[^"\[\]{}]++|' + _STRING
    if levels > 1:
        inner += b"|" + _nested(levels - 1)
    return rb"[\[{](?:%s)*+[\]}]" % inner


def _step(path: Sequence[str | int], nested: bytes, walked: int) -> bytes:
    """
    Return what matches the value at a path, and what follows it, up to the end of the objects and arrays of the last
    `walked` steps. `nested` matches an object or array that is not looked into.
    """
    if not path:
        return _VALUE
    step, inner = path[0], _step(path[1:], nested, walked)
    if isinstance(step, str):
        name = rb'"%s"%s:' % (step.encode(), _SPACE)
        others = rb"(?:(?!%s)(?:%s|%s)%s)*+" % (name, _PLAIN_STRING if walked else _STRING, nested, _OUTSIDE)
        begin, end = rb"\{%s%s%s%s" % (_OUTSIDE, others, name, _SPACE), rb"\}"
    else:
        others = rb"(?:(?:%s|%s)%s)*+" % (_STRING, nested, _OUTSIDE)
        element = rb'[^"\[\]{},]*+(?:(?:%s|%s)[^"\[\]{},]*+)?+,' % (_STRING, nested)
        begin, end = rb"\[(?:%s){%d}%s" % (element, step, _SPACE), rb"\]"
    if len(path) > walked:
        return begin + inner + rb"[,}\]]" if len(path) == 1 else begin + inner
    return begin + inner + rb"(?:,%s%s)?+%s%s" % (_OUTSIDE, others, end, _SPACE)


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
