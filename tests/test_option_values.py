"""Values of options: Go's texts for numbers, durations and booleans."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.option_values import (
    BOOLEAN,
    DURATION,
    FRACTIONS,
    INTEGER,
    LEVEL,
    TEXT,
    TEXTS,
    TLS_REQUIREMENT,
    TLS_VERSION,
    choice,
    parse_boolean,
    parse_duration,
    parse_integer,
    show_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("250ms", 0.25),
        ("1h30m", 5400.0),
        ("1h0m0s", 3600.0),
        ("1.5s", 1.5),
        (".5m", 30.0),
        ("2.s", 2.0),
        ("-1s", -1.0),
        ("+1s", 1.0),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("100μs", 0.0001),
        ("1s1s", 2.0),
        ("15ns", 1.5e-08),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "1", "60", "s", ".s", "1d", "1 s", " 1s", "1s ", "1S", "1,5s", "s1", "1e3s", "--1s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="parse error"):
        parse_duration(text)


def test_a_duration_must_fit_in_64_bits_of_nanoseconds() -> None:
    assert parse_duration("2562047h") == 2562047 * 3600
    with pytest.raises(ValueError, match="out of range"):
        parse_duration("2562048h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (60.0, "1m0s"),
        (3600.0, "1h0m0s"),
        (5400.0, "1h30m0s"),
        (0.25, "250ms"),
        (0.025, "25ms"),
        (1.5, "1.5s"),
        (2.0, "2s"),
        (0.0000015, "1.5µs"),
        (0.000000001, "1ns"),
        (-61.0, "-1m1s"),
    ],
)
def test_durations_are_shown_as_go_shows_them(seconds: float, text: str) -> None:
    assert text == show_duration(seconds)


@given(st.integers(-(10**15), 10**15))
def test_a_duration_survives_being_shown_and_read(nanoseconds: int) -> None:
    seconds = nanoseconds / 1_000_000_000
    assert math.isclose(seconds, parse_duration(show_duration(seconds)), abs_tol=1e-9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("10", 10),
        ("-10", -10),
        ("+10", 10),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0X_1f", 31),
        ("-0x10", -16),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers_are_read_as_go_reads_them(text: str, value: int) -> None:
    assert value == parse_integer(text)


@pytest.mark.parametrize(
    "text", ["", "many", "1.0", "1e3", " 1", "1 ", "1__0", "1_", "_1", "0x", "08", "0b2", "--1", "١"]
)
def test_what_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="parse error"):
        parse_integer(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809"])
def test_an_integer_must_fit_in_64_bits(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_integer(text)


def test_booleans_are_gos_words_and_no_others() -> None:
    assert all(parse_boolean(word) for word in ("1", "t", "T", "true", "TRUE", "True"))
    assert not any(parse_boolean(word) for word in ("0", "f", "F", "false", "FALSE", "False"))
    for word in ("", "yes", "tRUE", "on", "2"):
        with pytest.raises(ValueError, match="parse error"):
            parse_boolean(word)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (TEXT, "x", "x"),
        (INTEGER, 7, 7),
        (INTEGER, "7", 7),
        (INTEGER, "-7", -7),
        (DURATION, 250, 0.25),
        (DURATION, "1m", 60.0),
        (BOOLEAN, True, True),
        (BOOLEAN, False, False),
        (BOOLEAN, "t", True),
        (BOOLEAN, "False", False),
        (BOOLEAN, 0, True),
        (BOOLEAN, 1, False),
        (TEXTS, ["a", "b,c"], ("a", "b,c")),
        (TEXTS, "a,b", ("a", "b")),
        (TEXTS, "", ()),
        (FRACTIONS, [0.5, 1.0, 0.99], (0.5, 1.0, 0.99)),
        (FRACTIONS, [1], (1.0,)),
        (FRACTIONS, "0.5,0.99", (0.5, 0.99)),
        (LEVEL, "DEBUG", 1),
        (TLS_REQUIREMENT, True, 2),
        (TLS_REQUIREMENT, False, 0),
        (TLS_REQUIREMENT, "TCP-HTTPS", 1),
        (TLS_VERSION, "tls1.3", 772),
        (TLS_VERSION, "", 769),
    ],
)
def test_a_config_file_is_read_with_nsqds_coercions(kind: object, raw: object, value: object) -> None:
    assert value == kind.coerce(raw)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (TEXT, 5),
        (INTEGER, 1.0),
        (INTEGER, True),
        (INTEGER, "0x10"),
        (INTEGER, 2**63),
        (DURATION, 1.5),
        (DURATION, "60"),
        (DURATION, False),
        (BOOLEAN, "yes"),
        (BOOLEAN, 1.0),
        (TEXTS, [1]),
        (TEXTS, 1),
        (FRACTIONS, ["0.5"]),
        (FRACTIONS, [True]),
        (FRACTIONS, "x"),
        (LEVEL, "loud"),
        (LEVEL, 1),
        (TLS_REQUIREMENT, "maybe"),
        (TLS_VERSION, "ssl3.0"),
    ],
)
def test_a_config_value_of_another_type_is_refused(kind: object, raw: object) -> None:
    with pytest.raises(ValueError):
        kind.coerce(raw)  # type: ignore[attr-defined]


def test_percentiles_on_the_command_line_are_sorted_downwards() -> None:
    assert FRACTIONS.parse("0.5,0.99") == (0.99, 0.5)


def test_a_choice_names_what_there_is_to_choose() -> None:
    kind = choice("memory", "os")
    assert kind.parse("OS") == "os"
    with pytest.raises(ValueError, match="must be one of memory, os"):
        kind.parse("paper")
