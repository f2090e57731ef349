"""
Texts of values: integers, booleans, durations and sizes, as options, requests, logs, statistics and tables have them.

    integer    42, 0x2a, 1_000           as Go reads one
    boolean    true, T, 1                as Go reads one
    duration   1h30m, 250ms, 24.616µs    as Go reads and writes one; and days, 7d
               2 h 5 min, 2.1 h          readable
    size       64MB, 1048576             each unit is 1024 times the one before
               12.3 MB                   readable
"""

from __future__ import annotations

import re

from nsqtw.gocompat.values import quoted

_NANOSECONDS = 1_000_000_000

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": _NANOSECONDS,
    "m": 60 * _NANOSECONDS,
    "h": 3_600 * _NANOSECONDS,
    "d": 86_400 * _NANOSECONDS,
}
_READABLE_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
SIZE_PATTERN = re.compile(r"([0-9]+)(?:\.([0-9]+))?([A-Za-z]+)")
_INTEGER = re.compile(r"[+-]?(?:0[xX]_?[0-9a-fA-F_]+|0[bB]_?[01_]+|0[oO]_?[0-7_]+|[0-9][0-9_]*)")
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_AMOUNT = re.compile(r"([0-9]+)(?:\.([0-9]*))?|\.([0-9]+)")
_UNIT = re.compile(r"[^.0-9]*")
_MAX = 2**63 - 1
OUT_OF_RANGE = "value out of range"
NO_WHOLE_NUMBER = "no whole number of bytes"


def parse_integer(text: str) -> int:
    """A 64-bit integer as Go reads one: decimal, 0x, 0o, 0b, a leading 0 for octal, `_` between digits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("parse error")
    digits = text.lstrip("+-")
    try:
        octal = digits.startswith("0") and digits[1:2].isdigit()
        value = int(digits.replace("0", "0o", 1) if octal else digits, 0)
    except ValueError:
        raise ValueError("parse error") from None
    value = -value if text.startswith("-") else value
    if not fits_int64(value):
        raise ValueError(OUT_OF_RANGE)
    return value


def parse_boolean(text: str) -> bool:
    """One of Go's words for true and false."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def parse_duration(text: str) -> float:
    """Seconds from Go's text for a duration: `1h30m`, `250ms`, `1.5s`, `7d`, `0`; a unit is needed but for 0."""
    try:
        return seconds_of(text)
    except ValueError:
        raise ValueError("parse error") from None


def seconds_of(text: str) -> float:
    """Like `parse_duration`, with the error in Go's words."""
    return _nanoseconds(text) / _NANOSECONDS


def show_duration(seconds: float) -> str:
    """Go's text for a duration in seconds: `1h0m0s`, `250ms`, `1.5s`, `0s`. Read again it gives the same seconds."""
    return duration_text(whole_nanoseconds(seconds))


def duration_text(nanoseconds: int) -> str:
    """Go's text for a duration in nanoseconds: largest unit first, no trailing zeros."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < _NANOSECONDS:
        unit = "ns" if rest < 1_000 else "µs" if rest < 1_000_000 else "ms"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NANOSECONDS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def readable_duration(seconds: float) -> str:
    """Return a duration with its two largest units: 2 h 5 min, 350 ms."""
    if seconds < 1:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 or seconds == 0 else 2}f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts: list[str] = []
    for length, unit in _READABLE_UNITS:
        number, whole = divmod(whole, length)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
    return " ".join(part for part in parts[:2] if part)


def brief_duration(seconds: float) -> str:
    """Return a duration in its largest unit: 2.1 h, 35 min."""
    if seconds < 60:
        return readable_duration(seconds)
    length, unit = next((length, unit) for length, unit in _READABLE_UNITS if seconds >= length)
    number = seconds / length
    return f"{number:.{1 if number < 9.95 else 0}f} {unit}"


def whole_nanoseconds(seconds: float) -> int:
    """Seconds in nanoseconds, to the nearest whole one, within what 64 bits hold."""
    # In integers: a product of floats would be off by some nanoseconds from half a year on.
    numerator, denominator = seconds.as_integer_ratio()
    nanoseconds = (2 * numerator * _NANOSECONDS + denominator) // (2 * denominator)
    return max(-_MAX, min(nanoseconds, _MAX))


def parse_size(text: str) -> int:
    """Bytes from an integer, or from a number with a unit in any case: `1048576`, `64MB`, `1.5gb`. ValueError."""
    match = SIZE_PATTERN.fullmatch(text)
    if match is None or match[3].upper() not in _SIZE_UNITS:
        return parse_integer(text)
    whole, fraction, unit = match[1], match[2] or "", _SIZE_UNITS[match[3].upper()]
    size, rest = divmod(int(whole + fraction) * unit, int("1" + "0" * len(fraction)))
    if rest:
        raise ValueError(NO_WHOLE_NUMBER)
    if not fits_int64(size):
        raise ValueError(OUT_OF_RANGE)
    return size


def readable_size(count: float) -> str:
    """Return a number of bytes with a unit: 12.3 MB."""
    # The next unit from the amount on that would be shown as 1024 of this one.
    unit = next((name for name, size in _SIZE_UNITS.items() if count / size < 1023.5), "TB")
    amount = count / _SIZE_UNITS[unit]
    digits = 0 if unit == "B" or amount >= 99.95 or amount == int(amount) else 1
    return f"{amount:.{digits}f} {unit}"


def fits_int64(value: int) -> bool:
    """Return whether 64 bits hold a number."""
    return -(2**63) <= value < 2**63


def _nanoseconds(text: str) -> int:
    """A duration as Go reads one, in nanoseconds. ValueError in Go's words."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"time: invalid duration {quoted(text)}")
    total = position = 0
    while position < len(rest):
        amount = _AMOUNT.match(rest, position)
        if amount is None:
            raise ValueError(f"time: invalid duration {quoted(text)}")
        unit = _UNIT.match(rest, amount.end())
        assert unit is not None  # it matches nothing, too
        if not unit[0]:
            raise ValueError(f"time: missing unit in duration {quoted(text)}")
        if unit[0] not in _UNITS:
            raise ValueError(f"time: unknown unit {quoted(unit[0])} in duration {quoted(text)}")
        fraction = amount[2] or amount[3] or ""
        total += int(amount[1] or 0) * _UNITS[unit[0]]
        total += _part(fraction, _UNITS[unit[0]])
        position = unit.end()
    total = -total if text.startswith("-") else total
    if not fits_int64(total):
        raise ValueError(f"time: invalid duration {quoted(text)}")
    return total


def _part(fraction: str, unit: int) -> int:
    """
    Return the value of the digits behind a point, in ns: in floats, and no more digits than 64 bits hold, as in Go.
    """
    while fraction and not fits_int64(int(fraction)):
        fraction = fraction[:-1]
    scale = float(f"1e{len(fraction)}")  # infinite for very many digits, where 10.0**len would raise
    return int(int(fraction or 0) * (unit / scale))


def _decimal(value: int, unit: int) -> str:
    """`value` / `unit` in decimal digits, none of them superfluous; `unit` is a power of ten."""
    whole, fraction = divmod(value, unit)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if fraction else str(whole)
