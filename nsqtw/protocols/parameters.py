"""Numbers on a command line (nsqd specification 1.3): decimal digits, 64 bits, silent wrap-around."""

from __future__ import annotations

import re

_DIGITS = re.compile(rb"[0-9]*")
_MODULUS = 1 << 64
_NS_PER_MS = 10**6


def decimal(raw: bytes) -> int | None:
    """The unsigned number, 0 for nothing at all; None when there is anything but digits."""
    if _DIGITS.fullmatch(raw) is None:
        return None
    number = 0
    for start in range(0, len(raw), 4096):  # int() refuses very long texts; a client may send 16 KB of digits
        piece = raw[start : start + 4096]
        number = (number * pow(10, len(piece), _MODULUS) + int(piece)) % _MODULUS
    return number


def signed64(number: int) -> int:
    """The 64 bits of an unsigned number read as a signed one."""
    return number - _MODULUS if number >= _MODULUS >> 1 else number


def duration_ns(milliseconds: int) -> int:
    """Milliseconds as signed 64-bit nanoseconds, wrapped: too long a time comes out short or negative."""
    return signed64(milliseconds * _NS_PER_MS % _MODULUS)
