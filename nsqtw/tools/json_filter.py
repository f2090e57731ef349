"""
The JSON filter and projection of nsq_to_nsq, with JSON as Go reads it: numbers are 64-bit
floats, and what is no Unicode in a text becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs

from nsqtw.gocompat.json import float_text, parse_float
from nsqtw.gocompat.text import json_text

_REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class Verdict(Enum):
    """What becomes of a message."""

    PUBLISH = "publish"
    DROP = "drop"
    REQUEUE = "requeue"


@attrs.frozen
class Outcome:
    """The verdict for a message, its new body, and a line for the log if there is one."""

    verdict: Verdict
    body: bytes = b""
    complaint: str = ""


@attrs.frozen
class JsonFilter:
    """
    Passes messages with the field `required_field`, which has `required_value` if that is not empty, and keeps only the
    fields `kept`, all without any.
    """

    required_field: str = ""
    required_value: str = ""
    kept: Sequence[str] = ()

    @property
    def is_used(self) -> bool:
        """Whether messages must be JSON at all."""
        return bool(self.required_field or self.kept)

    def apply(self, body: bytes) -> Outcome:
        """Return what becomes of a message."""
        if not self.is_used:
            return Outcome(Verdict.PUBLISH, body)
        try:
            fields = _decoded(body)
        except (ValueError, RecursionError):
            fields = False
        if fields is None:
            fields = {}
        if not isinstance(fields, dict):
            text = body.decode("utf-8", "replace")
            return Outcome(Verdict.DROP, complaint=f"ERROR: Unable to decode json: {text}")
        if self.required_field:
            if self.required_field not in fields:
                if not self.required_value:
                    return Outcome(Verdict.DROP)
                return Outcome(Verdict.REQUEUE, complaint="ERROR: missing field to check required value")
            if self.required_value and not _equals(fields[self.required_field], self.required_value):
                return Outcome(Verdict.DROP)
        if self.kept:
            return Outcome(Verdict.PUBLISH, _encoded({name: fields[name] for name in self.kept if name in fields}))
        return Outcome(Verdict.PUBLISH, body)


def _decoded(body: bytes) -> Any:
    """Return the value in a body. ValueError, RecursionError."""
    text = _with_replacements(body.decode("utf-8", "surrogateescape"))
    value = json.loads(text, parse_int=parse_float, parse_float=parse_float, parse_constant=_refuse)
    return _without_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _with_replacements(text: str) -> str:
    return _SURROGATE.sub(_REPLACEMENT, text)


def _without_surrogates(value: Any) -> Any:
    """Return a value with the halves of pairs that escapes left replaced in all texts."""
    if isinstance(value, str):
        return _with_replacements(value)
    if isinstance(value, dict):
        return {_with_replacements(name): _without_surrogates(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    return value


def _equals(value: Any, wanted: str) -> bool:
    """Compare a text exactly, and a number as a float. Other values are never equal."""
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, float):
        try:
            return value == parse_float(wanted)
        except ValueError:
            return False
    return False


def _encoded(value: Any) -> bytes:
    if isinstance(value, dict):
        parts = [json_text(name) + b":" + _encoded(value[name]) for name in sorted(value)]
        return b"{" + b",".join(parts) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_encoded, value)) + b"]"
    if isinstance(value, float):
        return float_text(value).encode()
    return json_text(value)
