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
from nsqtw.options.texts import (
    NO_WHOLE_NUMBER,
    OUT_OF_RANGE,
    SIZE_PATTERN,
    fits_int64,
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_size,
    seconds_of,
    show_duration,
    whole_nanoseconds,
)

_DECIMAL = re.compile(r"[+-]?[0-9]+")
_NS_PER_MS = 10**6
_PLAIN_REASONS = (OUT_OF_RANGE, NO_WHOLE_NUMBER)

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
    if not fits_int64(value):
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
    if isinstance(value, str) and SIZE_PATTERN.fullmatch(value):
        try:
            return parse_size(value)
        except ValueError:
            raise ValueError(f"strconv.ParseInt: parsing {quoted(value)}: invalid syntax") from None
    return _coerce_integer(value)


def _coerce_duration(value: object) -> float:
    if isinstance(value, str):
        return seconds_of(value)
    if type(value) is int:
        # nsqd takes what does not fit for something else.
        if not fits_int64(value * _NS_PER_MS):
            raise ValueError(f"{value}: {OUT_OF_RANGE}")
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
