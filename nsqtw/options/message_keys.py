"""
The setting `ordered_by`: which part of a message is its key.

    header:NAME    the value of a header
    json:PATH      a value in a body that is a JSON object

A path has the names of members, separated by dots, and indexes of arrays in brackets, counted from 0:
"customer.id", "lines[0].article". A name is any text without `.`, `[`, `]` and control characters.
"""

from __future__ import annotations

import re

from attrs import frozen

from nsqtw.errors import InvalidPolicy

_HEADER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_MEMBER = r"[^.\[\]\x00-\x1f]+"
_STEP = rf"{_MEMBER}(?:\[[0-9]{{1,9}}\])*"
_PATH = re.compile(rf"{_STEP}(?:\.{_STEP})*")
_PART = re.compile(rf"({_MEMBER})|\[([0-9]+)\]")


@frozen
class KeyPlace:
    """The place of a key in a message: the header `header`, or else the value at `path` in the body."""

    header: str = ""
    path: tuple[str | int, ...] = ()
    """Names of members, and indexes of arrays."""


def read_key_place(text: str) -> KeyPlace:
    """Return what a value of `ordered_by` means. InvalidPolicy, one line."""
    kind, _, rest = text.partition(":")
    if kind == "header":
        name = rest.lower()
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidPolicy(f"ordered_by {text!r}: {rest!r} is not a name of a header")
        return KeyPlace(header=name)
    if kind == "json":
        if not _PATH.fullmatch(rest):
            raise InvalidPolicy(f"ordered_by {text!r}: {rest!r} is not a path such as customer.id or lines[0].article")
        return KeyPlace(path=tuple(name or int(index) for name, index in _PART.findall(rest)))
    raise InvalidPolicy(f"ordered_by {text!r} must be header:NAME or json:PATH")
