"""
JSON as NSQ's daemons and tools read and write it.

Objects are read into structures: keys match in any case and the last one wins, unknown ones and null mean nothing, and
types are exact: no quoted numbers, no fractions, no booleans for integers. A byte of a string that is no UTF-8 becomes
one U+FFFD. Floating-point numbers are those of Go, in flags as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, or a byte that is no UTF-8
_INTEGER_DIGITS = len(str(-(1 << 63)))
_INTEGER_BITS = 64
_ALL_WIDE: Mapping[str, int] = MappingProxyType({})
_LARGEST_PLAIN = 1e21
_SMALLEST_PLAIN = 1e-6
_HEX = re.compile(r"[+-]?0[xX]")
_IS_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def read_object(body: bytes, defaults: Mapping[str, Any], bits: Mapping[str, int] = _ALL_WIDE) -> dict[str, Any]:
    """
    Return all fields of `defaults` with their values in `body`, which must have the types of the defaults. Integers
    have 64 bits, or `bits`. ValueError or RecursionError when it is invalid.
    """
    fields = dict(defaults)
    document = json.loads(
        body.decode("utf-8", "surrogateescape"),
        object_pairs_hook=_Object,
        parse_int=_integer,
        parse_float=_Unfit,
        parse_constant=_Unfit,
    )
    if document is None:
        return fields
    if not isinstance(document, _Object):
        raise ValueError("not an object")
    for key, value in document:
        name = key.lower().replace("\u017f", "s")  # the long s; the Kelvin sign is a k in lower case anyway
        if name in fields and value is not None:
            fields[name] = _typed(name, value, type(defaults[name]), bits.get(name, _INTEGER_BITS))
    return fields


class _Unfit:
    """A number that is no integer, or a very long one; no field accepts it, an unknown key may have it."""

    def __init__(self, text: str) -> None:
        if text in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(text)


class _Object(list[tuple[str, Any]]):
    """A JSON object as its pairs, told apart from an array."""


def _integer(text: str) -> int | _Unfit:
    return int(text) if len(text) <= _INTEGER_DIGITS else _Unfit(text)


def _typed(name: str, value: Any, kind: type, bits: int) -> Any:
    if type(value) is not kind:
        raise ValueError(name)
    if isinstance(value, int) and not isinstance(value, bool):
        bound = 1 << (bits - 1)
        if not -bound <= value < bound:
            raise ValueError(name)
    return _LONE_SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def parse_float(text: str) -> float:
    """Read a number: decimal, hexadecimal, with `_` between digits, infinite or none (NaN). ValueError."""
    try:
        if not text.isascii() or text != text.strip():
            raise ValueError
        value = float.fromhex(text) if _HEX.match(text) else float(text)
    except (ValueError, OverflowError):
        raise ValueError("parse error") from None
    if math.isinf(value) and not _IS_INFINITE.fullmatch(text):
        raise ValueError("value out of range")
    return value


def float_text(value: float) -> str:
    """Write a finite float as Go's encoding/json does."""
    if value == 0 or _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa.removesuffix('.0')}e{sign}{digits}"
