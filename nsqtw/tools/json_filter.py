"""
The JSON filter and projection of nsq_to_nsq (suite specification 3.3). Numbers are 64-bit floats, and are written as
Go writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs

from nsqtw.gocompat.text import json_text

_LARGEST_PLAIN = 1e21
_SMALLEST_PLAIN = 1e-6


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
            fields = json.loads(body, parse_int=float, parse_constant=_refuse)
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


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _equals(value: Any, wanted: str) -> bool:
    """Compare a text exactly, and a number as a float. Other values are never equal."""
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, float):
        try:
            return value == float(wanted)
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
        return _number(value).encode()
    return json_text(value)


def _number(value: float) -> str:
    """Write a float as Go's encoding/json does."""
    if value == 0 or _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa.removesuffix('.0')}e{sign}{digits}"
