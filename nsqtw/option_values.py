"""
The kinds of value an option can have: how each is read from a flag and from a config file, and shown.

Reading follows nsqd (nsqd specification 4.1), surprises included: in a config file a bare integer is
milliseconds for a duration, and for a boolean it is inverted. Every reader raises ValueError, whose
text is a reason that fits behind "invalid value 'x' for flag -y: ".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs

NANOSECONDS = 1_000_000_000

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3_600 * NANOSECONDS,
}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)([a-zµμ]+)")
_DURATION = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)[a-zµμ]+)+")
_INTEGER = re.compile(r"[+-]?(?:0[xX]_?[0-9a-fA-F_]+|0[bB]_?[01_]+|0[oO]_?[0-7_]+|[0-9][0-9_]*)")
_DECIMAL = re.compile(r"[+-]?[0-9]+")
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))

LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
TLS_REQUIRED = {"false": 0, "tcp-https": 1, "true": 2}
TLS_VERSIONS = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}


@attrs.frozen
class Kind:
    """
    One kind of value.

    `parse` reads the text of a flag, `coerce` what a config file holds for the key, `show` gives the
    text a user would write, `config` what GET /config answers: str is sent as it is, all else as JSON.
    `bare` is the value of a flag without one (`--deflate`), None for kinds whose flags need a value.
    `add` joins the values of a repeated flag; without it the last one counts.
    """

    word: str
    parse: Callable[[str], Any]
    coerce: Callable[[object], Any]
    show: Callable[[Any], str] = str
    config: Callable[[Any], Any] = lambda value: value
    bare: Any = None
    add: Callable[[Any, Any], Any] | None = None


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
    return _in_int64(-value if text.startswith("-") else value)


def parse_duration(text: str) -> float:
    """Seconds from Go's text for a duration: `1h30m`, `250ms`, `1.5s`, `0`; a unit is needed but for 0."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError("parse error")
    nanoseconds = 0
    for amount, unit in _DURATION_PART.findall(text):
        if unit not in _UNITS:
            raise ValueError("parse error")
        whole, _, fraction = amount.partition(".")
        nanoseconds += int(whole or 0) * _UNITS[unit]
        nanoseconds += int(fraction or 0) * _UNITS[unit] // 10 ** len(fraction)
    return _in_int64(-nanoseconds if text.startswith("-") else nanoseconds) / NANOSECONDS


def show_duration(seconds: float) -> str:
    """Go's text for a duration: `1h0m0s`, `250ms`, `1.5s`, `0s`."""
    nanoseconds = round(seconds * NANOSECONDS)
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < NANOSECONDS:
        unit = "ns" if rest < 1_000 else "µs" if rest < 1_000_000 else "ms"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, NANOSECONDS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def parse_boolean(text: str) -> bool:
    """One of Go's words for true and false."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def choice(*words: str) -> Kind:
    """The kind of option that is one of `words`."""
    return _words({word: word for word in words})


def _in_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def _decimal(value: int, unit: int) -> str:
    """`value` / `unit` in decimal digits, none of them superfluous; `unit` is a power of ten."""
    whole, fraction = divmod(value, unit)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if fraction else str(whole)


def _of_type(wanted: type, what: str) -> Callable[[object], Any]:
    def coerce(value: object) -> Any:
        if type(value) is not wanted:
            raise ValueError(f"is no {what}")
        return value

    return coerce


_as_text = _of_type(str, "string")


def _coerce_integer(value: object) -> int:
    if type(value) is int:
        return _in_int64(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return _in_int64(int(value))
    raise ValueError("is no integer")


def _coerce_duration(value: object) -> float:
    if type(value) is int:
        return value / 1_000
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError("is no duration")


def _coerce_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value == 0
    if isinstance(value, str):
        return parse_boolean(value)
    raise ValueError("is no boolean")


def _coerce_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_as_text(item) for item in value)
    return tuple(part for part in _as_text(value).split(",") if part)


def _parse_fractions(text: str) -> tuple[float, ...]:
    return tuple(sorted(map(float, filter(None, text.split(","))), reverse=True))


def _coerce_fractions(value: object) -> tuple[float, ...]:
    if isinstance(value, list):
        if any(type(item) not in (int, float) for item in value):
            raise ValueError("is no list of numbers")
        return tuple(map(float, value))
    return tuple(map(float, filter(None, _as_text(value).split(","))))


def _words(values: dict[str, Any], *, bare: Any = None) -> Kind:
    """The kind of option that is one of a few words in any case, each standing for a value."""
    names = {value: name for name, value in values.items()}

    def parse(text: str) -> Any:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(f"must be one of {', '.join(values)}") from None

    def coerce(value: object) -> Any:
        return parse(_as_text(value))

    return Kind("word", parse, coerce, names.__getitem__, bare=bare)


def _coerce_tls_required(value: object) -> int:
    if isinstance(value, bool):
        return TLS_REQUIRED[str(value).lower()]
    return int(_TLS_WORDS.coerce(value))


def _coerce_tls_version(value: object) -> int:
    # nsqd takes an empty text for a key that is not there.
    return TLS_VERSIONS["tls1.0"] if value == "" else int(_TLS_VERSION_WORDS.coerce(value))


def fraction_text(value: float) -> str:
    """A fraction as Go prints it: 0.99, and 1 without a point."""
    return repr(value).removesuffix(".0")


_TLS_WORDS = _words(TLS_REQUIRED, bare=TLS_REQUIRED["true"])
_TLS_VERSION_WORDS = _words(TLS_VERSIONS)

TEXT = Kind("string", str, _as_text)
INTEGER = Kind("int", parse_integer, _coerce_integer)
DURATION = Kind(
    "duration",
    parse_duration,
    _coerce_duration,
    show_duration,
    config=lambda seconds: round(seconds * NANOSECONDS),
)
BOOLEAN = Kind("bool", parse_boolean, _coerce_boolean, lambda value: str(value).lower(), bare=True)
TEXTS = Kind(
    "list",
    lambda text: (text,) if text else (),
    _coerce_texts,
    ",".join,
    config=list,
    add=lambda old, new: old + new,
)
FRACTIONS = Kind(
    "list of numbers",
    _parse_fractions,
    _coerce_fractions,
    lambda values: ",".join(map(fraction_text, values)),
    config=lambda values: [int(value) if value.is_integer() else value for value in values],
    add=lambda old, new: tuple(sorted(old + new, reverse=True)),
)
LEVEL = _words(LEVELS)
TLS_REQUIREMENT = attrs.evolve(_TLS_WORDS, coerce=_coerce_tls_required)
TLS_VERSION = attrs.evolve(_TLS_VERSION_WORDS, coerce=_coerce_tls_version)
