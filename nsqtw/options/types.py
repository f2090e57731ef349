"""
Types of option values: how each is read from a flag and from a config file, and how it is shown.

Reading follows nsqd: in a config file a bare integer is milliseconds for a duration, and for a
boolean it is inverted. Values on which nsqd would crash, a list of the wrong things or a number for a text, are
refused. Every reader raises ValueError with the reason in nsqd's words; the `form` of a type says what is allowed, and
`unfit` makes a sentence of it.

Two units are not nsqd's: `d` for durations, and `KB` to `TB` for sizes, each 1024 times the one before.

`did_you_mean` suggests a known name for a mistyped one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from nsqtw.gocompat.values import quoted, shown, type_name
from nsqtw.options.redaction import without_argument, without_password

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
    "d": 86_400 * NANOSECONDS,
}
SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
"""The units of sizes in bytes, each 1024 of the one below."""
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))?([A-Za-z]+)")
_AMOUNT = re.compile(r"([0-9]+)(?:\.([0-9]*))?|\.([0-9]+)")
_UNIT = re.compile(r"[^.0-9]*")
_INTEGER = re.compile(r"[+-]?(?:0[xX]_?[0-9a-fA-F_]+|0[bB]_?[01_]+|0[oO]_?[0-7_]+|[0-9][0-9_]*)")
_DECIMAL = re.compile(r"[+-]?[0-9]+")
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_MAX = 2**63 - 1
_OUT_OF_RANGE = "value out of range"
_PLAIN_REASONS = (_OUT_OF_RANGE, "no whole number of bytes")

DEBUG: Final = 1
LEVELS = {"debug": DEBUG, "info": 2, "warn": 3, "error": 4, "fatal": 5}
TLS_REQUIRED = {"false": 0, "tcp-https": 1, "true": 2}
TLS_MIN = "tls1.2"
"""The lowest version of TLS unless a lower one is asked for."""
REQUIRE, REQUIRE_VERIFY = "require", "require-verify"
CLIENT_AUTH_POLICIES = ("", REQUIRE, REQUIRE_VERIFY)
"""The values of --tls-client-auth-policy. As in nsqd, any other word means the first one, and requires TLS."""
TLS_VERSIONS = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}


@attrs.frozen(kw_only=True)
class Kind:
    """
    One kind of value. `word` names it in tables; a value must be `form`.

    `parse` reads the text of a flag, `coerce` what a config file holds for the key. `show` gives the text a
    user would write, `config` what GET /config answers: str is sent as it is, all else as JSON; `plain` what
    stands in a config file.
    `bare` is the value of a flag without one (`--deflate`), None for kinds whose flags need a value.
    `add` joins the values of a repeated flag; without it the last one counts.
    `words` are the values there are, for a kind with only a few.
    """

    word: str
    form: str
    parse: Callable[[str], Any]
    coerce: Callable[[object], Any]
    show: Callable[[Any], str] = str
    config: Callable[[Any], Any] = lambda value: value
    plain: Callable[[Any], Any] = lambda value: value
    bare: Any = None
    add: Callable[[Any, Any], Any] | None = None
    words: tuple[str, ...] = ()


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
    if not _in_int64(value):
        raise ValueError(_OUT_OF_RANGE)
    return value


def parse_size(text: str) -> int:
    """Bytes from an integer, or from a number with a unit in any case: `1048576`, `64MB`, `1.5gb`. ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None or match[3].upper() not in SIZE_UNITS:
        return parse_integer(text)
    whole, fraction, unit = match[1], match[2] or "", SIZE_UNITS[match[3].upper()]
    size, rest = divmod(int(whole + fraction) * unit, int("1" + "0" * len(fraction)))
    if rest:
        raise ValueError("no whole number of bytes")
    if not _in_int64(size):
        raise ValueError(_OUT_OF_RANGE)
    return size


def parse_duration(text: str) -> float:
    """Seconds from Go's text for a duration: `1h30m`, `250ms`, `1.5s`, `7d`, `0`; a unit is needed but for 0."""
    try:
        return _nanoseconds(text) / NANOSECONDS
    except ValueError:
        raise ValueError("parse error") from None


def show_duration(seconds: float) -> str:
    """Go's text for a duration: `1h0m0s`, `250ms`, `1.5s`, `0s`. Read again it gives the same seconds."""
    nanoseconds = whole_nanoseconds(seconds)
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


def whole_nanoseconds(seconds: float) -> int:
    """Seconds in nanoseconds, to the nearest whole one, within what 64 bits hold."""
    # In integers: a product of floats would be off by some nanoseconds from half a year on.
    numerator, denominator = seconds.as_integer_ratio()
    nanoseconds = (2 * numerator * NANOSECONDS + denominator) // (2 * denominator)
    return max(-_MAX, min(nanoseconds, _MAX))


def parse_boolean(text: str) -> bool:
    """One of Go's words for true and false."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def unfit(kind: Kind, text: str, failure: ValueError) -> str:
    """Return the error for `text`, which a reader of `kind` refused, in words that do not need Go to be understood."""
    hint = did_you_mean(text.lower(), kind.words) if kind.words else ""
    reason = f"{failure}; " if str(failure) in _PLAIN_REASONS else ""
    return f"{reason}must be {kind.form}{hint}"


def choice(*words: str) -> Kind:
    """The kind of option that is one of `words`."""
    return _words({word: word for word in words})


def toml_value(value: Any) -> str:
    """Return a value as TOML has it. UnicodeEncodeError for a text that is no UTF-8."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            value.encode("utf-8")  # what cannot be decoded on the command line cannot be encoded here
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)


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
    if not _in_int64(total):
        raise ValueError(f"time: invalid duration {quoted(text)}")
    return total


def _part(fraction: str, unit: int) -> int:
    """
    Return the value of the digits behind a point, in ns: in floats, and no more digits than 64 bits hold, as in Go.
    """
    while fraction and not _in_int64(int(fraction)):
        fraction = fraction[:-1]
    scale = float(f"1e{len(fraction)}")  # infinite for very many digits, where 10.0**len would raise
    return int(int(fraction or 0) * (unit / scale))


def _in_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _decimal(value: int, unit: int) -> str:
    """`value` / `unit` in decimal digits, none of them superfluous; `unit` is a power of ten."""
    whole, fraction = divmod(value, unit)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if fraction else str(whole)


def _coerce_text(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("invalid argument")  # what the system would say of such a path
        return value
    raise ValueError(f"invalid string value type {type_name(value)}")


def _coerce_integer(value: object) -> int:
    if isinstance(value, str):
        parsing = f"strconv.ParseInt: parsing {quoted(value)}"
        if not _DECIMAL.fullmatch(value):
            raise ValueError(f"{parsing}: invalid syntax")
        value = int(value)
    elif type(value) is int:
        parsing = str(value)
    else:
        raise ValueError(f"invalid int64 value type {type_name(value)}")
    if not _in_int64(value):
        raise ValueError(f"{parsing}: value out of range")
    return value


def _coerce_number(value: object) -> float:
    if isinstance(value, str):
        return _fraction(value)
    if type(value) in (int, float):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise ValueError(f"{value}: value out of range") from None
    raise ValueError(f"invalid float64 value type {type_name(value)}")


def _plain_number(value: float) -> float:
    return int(value) if value.is_integer() else value


def _coerce_size(value: object) -> int:
    if isinstance(value, str) and _SIZE.fullmatch(value):
        try:
            return parse_size(value)
        except ValueError:
            raise ValueError(f"strconv.ParseInt: parsing {quoted(value)}: invalid syntax") from None
    return _coerce_integer(value)


def _coerce_duration(value: object) -> float:
    if isinstance(value, str):
        return _nanoseconds(value) / NANOSECONDS
    if type(value) is int:
        # nsqd takes what does not fit for something else.
        if not _in_int64(value * _UNITS["ms"]):
            raise ValueError(f"{value}: value out of range")
        return value / 1_000
    raise ValueError(f"invalid time.Duration value type {type_name(value)}")


def _coerce_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value == 0
    if isinstance(value, str):
        return _parse_bool(value)
    raise ValueError(f"invalid bool value type {type_name(value)}")


def _parse_bool(text: str) -> bool:
    try:
        return parse_boolean(text)
    except ValueError:
        raise ValueError(f"strconv.ParseBool: parsing {quoted(text)}: invalid syntax") from None


def _coerce_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_element(item, str, "string") for item in value)
    if isinstance(value, str):
        return tuple(value.split(","))
    raise ValueError(f"invalid []string value type {type_name(value)}")


def _coerce_fractions(value: object) -> tuple[float, ...]:
    if isinstance(value, list):
        return tuple(_element(item, float, "float64") for item in value)
    if isinstance(value, str):
        return tuple(_fraction(part.strip(" \t\r\n")) for part in value.split(","))
    raise ValueError(f"invalid []float64 value type {type_name(value)}")


def _element(item: object, kind: type, name: str) -> Any:
    # nsqd ends with this text and a stack trace.
    if type(item) is not kind:
        raise ValueError(f"interface conversion: interface {{}} is {type_name(item)}, not {name}")
    return item


def _coerce_names(value: object) -> tuple[str, ...]:
    return _parse_names(",".join(_coerce_texts(value)))


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _parse_fractions(text: str) -> tuple[float, ...]:
    return _downwards(tuple(_parsed_fraction(part) for part in text.split(",")))


def _parsed_fraction(text: str) -> float:
    try:
        return _fraction(text)
    except ValueError:
        raise ValueError(f"Could not parse: {text}") from None


def _fraction(text: str) -> float:
    """A floating-point number as Go reads one. ValueError in Go's words."""
    parsing = f"strconv.ParseFloat: parsing {quoted(text)}"
    try:
        if not text.isascii() or text != text.strip():
            raise ValueError
        value = float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{parsing}: invalid syntax") from None
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"{parsing}: value out of range")
    return value


def _downwards(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(values, reverse=True))


def _words(
    values: dict[str, Any], *, bare: Any = None, reason: Callable[[str], str] = lambda text: "parse error"
) -> Kind:
    """The kind of option that is one of a few words in any case, each standing for a value."""
    names = {value: name for name, value in values.items()}

    def parse(text: str) -> Any:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(reason(text)) from None

    *others, last = values
    return Kind(
        word="word",
        form=f"{', '.join(others)} or {last}",
        parse=parse,
        coerce=lambda value: parse(shown(value)),
        show=names.__getitem__,
        plain=names.__getitem__,
        bare=bare,
        words=tuple(values),
    )


def _tls_requirement() -> Kind:
    words = _words(TLS_REQUIRED, bare=TLS_REQUIRED["true"])

    def parse(text: str) -> int:
        word = text.lower()
        return TLS_REQUIRED[word if word in TLS_REQUIRED else str(_parse_bool(word)).lower()]

    return attrs.evolve(words, parse=parse, coerce=lambda value: parse(shown(value)))


def _tls_version() -> Kind:
    words = _words(TLS_VERSIONS, reason=lambda text: f"unknown tlsVersionOption {quoted(text.lower())}")

    def parse(text: str) -> int:
        # nsqd takes an empty text for none.
        return TLS_VERSIONS[TLS_MIN] if text == "" else int(words.parse(text))

    return attrs.evolve(words, parse=parse, coerce=lambda value: parse(shown(value)))


TEXT = Kind(word="string", form="a text in quotes", parse=str, coerce=_coerce_text)
INTEGER = Kind(word="int", form="a whole number", parse=parse_integer, coerce=_coerce_integer)
SIZE = Kind(
    word="size",
    form="a number of bytes, such as 1048576 or 1MB",
    parse=parse_size,
    coerce=_coerce_size,
)
NUMBER = Kind(
    word="number",
    form="a number",
    parse=_fraction,
    coerce=_coerce_number,
    show=lambda value: str(_plain_number(value)),
    config=_plain_number,
    plain=_plain_number,
)
DURATION = Kind(
    word="duration",
    form="a number with a unit, such as 250ms or 1h30m",
    parse=parse_duration,
    coerce=_coerce_duration,
    show=show_duration,
    config=whole_nanoseconds,
    plain=show_duration,
)
BOOLEAN = Kind(
    word="bool",
    form="true or false",
    parse=parse_boolean,
    coerce=_coerce_boolean,
    show=lambda value: str(value).lower(),
    bare=True,
)
TEXTS = Kind(
    word="list",
    form="texts in quotes, in a list",
    parse=lambda text: (text,),
    coerce=_coerce_texts,
    show=",".join,
    config=list,
    plain=list,
    add=lambda old, new: old + new,
)
NAMES = attrs.evolve(TEXTS, form="names with commas between them", parse=_parse_names, coerce=_coerce_names)
"""Texts that one flag may hold several of."""
ADDRESSES = attrs.evolve(
    TEXTS,
    config=lambda values: list(map(without_password, values)),
    plain=lambda values: list(map(without_password, values)),
)
"""Addresses in which there may be a password."""
AUTHORIZER = attrs.evolve(TEXT, config=without_argument, plain=without_argument)
FRACTIONS = Kind(
    word="list of numbers",
    form="numbers above 0 and at most 1, with a point, such as 0.99 or 1.0",
    parse=_parse_fractions,
    coerce=_coerce_fractions,
    show=lambda values: ",".join(map(shown, values)),
    config=lambda values: [int(value) if value.is_integer() else value for value in values],
    plain=list,
    add=lambda old, new: _downwards(old + new),
)
LEVEL = _words(LEVELS, reason=lambda text: f"invalid log level '{text}' ({', '.join(LEVELS)})")
TLS_REQUIREMENT = _tls_requirement()
TLS_VERSION = _tls_version()


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """
    `, did you mean ...?` with the known name that looks most like `name`; empty when none does. `prefix`, which all
    of them have, makes nothing more alike.
    """
    # Imported lazily: only needed for wrong names.
    from difflib import get_close_matches

    matches = get_close_matches(name.removeprefix(prefix), [word.removeprefix(prefix) for word in names], 1)
    return f", did you mean {prefix + matches[0]!r}?" if matches else ""
