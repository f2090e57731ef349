"""Floating-point numbers as Go reads and writes them: in flags, and in JSON."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_LARGEST_PLAIN = 1e21
_SMALLEST_PLAIN = 1e-6
_HEX = re.compile(r"[+-]?0[xX]")
_IS_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


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
