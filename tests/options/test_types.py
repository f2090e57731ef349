"""Values of options: Go's texts for numbers, durations and booleans."""

from __future__ import annotations

import math
import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.options.texts import parse_boolean, parse_duration, parse_integer, parse_size, show_duration
from nsqtw.options.types import (
    BOOLEAN,
    DURATION,
    FRACTIONS,
    INTEGER,
    LEVEL,
    NAMES,
    SIZE,
    TEXT,
    TEXTS,
    TLS_REQUIREMENT,
    TLS_VERSION,
    Kind,
    choice,
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
        ("0.3333333333333333333h", 1200.0),
        ("0.100000000000000000000h", 360.0),
        (".5m", 30.0),
        ("2.s", 2.0),
        ("-1s", -1.0),
        ("+1s", 1.0),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("100μs", 0.0001),
        ("1s1s", 2.0),
        ("7d", 604_800.0),
        ("1d12h", 129_600.0),
        ("15ns", 1.5e-08),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "-", "1", "60", "s", ".s", "1w", "1 s", " 1s", "1s ", "1S", "1,5s", "s1", "1e3s", "--1s", "١s", "2562048h"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="parse error"):
        parse_duration(text)


def test_a_duration_may_have_any_number_of_digits_behind_the_point() -> None:
    """What lies beyond what a float can say counts for nothing, as in Go."""
    assert parse_duration("1." + 400 * "0" + "1s") == 1.0
    assert parse_duration("0." + 400 * "3" + "s") == parse_duration("0.333333333s")


def test_a_duration_must_fit_in_64_bits_of_nanoseconds() -> None:
    assert parse_duration("2562047h") == 2562047 * 3600
    assert parse_duration("-2562047h") == -2562047 * 3600
    for coerced, why in (("2562048h", "invalid duration"), (2**63 // 1_000_000 + 1, "value out of range")):
        with pytest.raises(ValueError, match=why):
            DURATION.coerce(coerced)


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


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_duration_survives_being_shown_and_read(nanoseconds: int) -> None:
    seconds = nanoseconds / 1_000_000_000
    assert seconds == parse_duration(show_duration(seconds))


@given(st.integers(-(2**52), 2**52))
def test_config_says_the_nanoseconds_that_were_given(nanoseconds: int) -> None:
    assert nanoseconds == DURATION.config(nanoseconds / 1_000_000_000)


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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("0x10", 16),
        ("-5", -5),
        ("7B", 7),
        ("64KB", 1 << 16),
        ("64kb", 1 << 16),
        ("2MB", 2 << 20),
        ("1.5GB", 3 << 29),
        ("3TB", 3 << 40),
    ],
)
def test_a_size_is_an_integer_or_has_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size
    if not text.startswith("0x"):
        assert SIZE.coerce(text) == size


@pytest.mark.parametrize("text", ["", "KB", "1 KB", "-1KB", "1K", "1ZB", "0.3B", "1.1KB", "9000000000TB", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(parse error|no whole number of bytes|value out of range)$"):
        parse_size(text)


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
        (TEXTS, "", ("",)),
        (NAMES, ["V2", "V3"], ("V2", "V3")),
        (NAMES, "V2, V3", ("V2", "V3")),
        (SIZE, 7, 7),
        (SIZE, "7", 7),
        (TEXTS, "a,,b", ("a", "", "b")),
        (INTEGER, "+7", 7),
        (FRACTIONS, [0.5, 1.0, 0.99], (0.5, 1.0, 0.99)),
        (FRACTIONS, [], ()),
        (FRACTIONS, "0.5,0.99", (0.5, 0.99)),
        (FRACTIONS, " 0.5, 0.99 ", (0.5, 0.99)),
        (LEVEL, "DEBUG", 1),
        (TLS_REQUIREMENT, True, 2),
        (TLS_REQUIREMENT, False, 0),
        (TLS_REQUIREMENT, "TCP-HTTPS", 1),
        (TLS_REQUIREMENT, 1, 2),
        (TLS_REQUIREMENT, 0, 0),
        (TLS_REQUIREMENT, "T", 2),
        (TLS_VERSION, "tls1.3", 772),
        (TLS_VERSION, "", 771),
    ],
)
def test_a_config_file_is_read_with_nsqds_coercions(kind: Kind, raw: object, value: object) -> None:
    assert value == kind.coerce(raw)


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        (INTEGER, 1.0, "invalid int64 value type float64"),
        (INTEGER, True, "invalid int64 value type bool"),
        (INTEGER, [1], "invalid int64 value type []interface {}"),
        (INTEGER, {"x": 1}, "invalid int64 value type map[string]interface {}"),
        (INTEGER, date(2026, 1, 1), "invalid int64 value type time.Time"),
        (INTEGER, "0x10", 'strconv.ParseInt: parsing "0x10": invalid syntax'),
        (INTEGER, "", 'strconv.ParseInt: parsing "": invalid syntax'),
        (INTEGER, "9223372036854775808", 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        (INTEGER, 2**63, "9223372036854775808: value out of range"),
        (DURATION, 1.5, "invalid time.Duration value type float64"),
        (DURATION, False, "invalid time.Duration value type bool"),
        (DURATION, "", 'time: invalid duration ""'),
        (DURATION, "x", 'time: invalid duration "x"'),
        (DURATION, "60", 'time: missing unit in duration "60"'),
        (DURATION, "1w", 'time: unknown unit "w" in duration "1w"'),
        (SIZE, "1ZB", 'strconv.ParseInt: parsing "1ZB": invalid syntax'),
        (SIZE, 1.5, "invalid int64 value type float64"),
        (BOOLEAN, "yes", 'strconv.ParseBool: parsing "yes": invalid syntax'),
        (BOOLEAN, 1.0, "invalid bool value type float64"),
        (FRACTIONS, "", 'strconv.ParseFloat: parsing "": invalid syntax'),
        (FRACTIONS, "x", 'strconv.ParseFloat: parsing "x": invalid syntax'),
        (FRACTIONS, "1e400", 'strconv.ParseFloat: parsing "1e400": value out of range'),
        (LEVEL, "loud", "invalid log level 'loud' (debug, info, warn, error, fatal)"),
        (LEVEL, 1, "invalid log level '1' (debug, info, warn, error, fatal)"),
        (TLS_REQUIREMENT, "maybe", 'strconv.ParseBool: parsing "maybe": invalid syntax'),
        (TLS_REQUIREMENT, 2, 'strconv.ParseBool: parsing "2": invalid syntax'),
        (TLS_VERSION, "ssl3.0", 'unknown tlsVersionOption "ssl3.0"'),
        (TLS_VERSION, 771, 'unknown tlsVersionOption "771"'),
    ],
)
def test_a_config_value_of_another_type_is_refused_in_nsqds_words(kind: Kind, raw: object, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        kind.coerce(raw)


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        (TEXT, 5, "invalid string value type int64"),
        (TEXT, ["a"], "invalid string value type []interface {}"),
        (TEXT, "a\0b", "invalid argument"),
        (TEXTS, 1, "invalid []string value type int64"),
        (TEXTS, ["a", 1], "interface conversion: interface {} is int64, not string"),
        (FRACTIONS, 0.5, "invalid []float64 value type float64"),
        (FRACTIONS, [0.5, 1], "interface conversion: interface {} is int64, not float64"),
        (FRACTIONS, ["0.5"], "interface conversion: interface {} is string, not float64"),
        (FRACTIONS, [True], "interface conversion: interface {} is bool, not float64"),
    ],
)
def test_what_nsqd_crashes_on_or_garbles_is_refused(kind: Kind, raw: object, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        kind.coerce(raw)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("1e-3", 0.001), (".5", 0.5), ("+1", 1.0), ("0x1p-2", 0.25), ("1_0e-2", 0.1), ("inf", math.inf)],
)
def test_numbers_with_a_point_are_read_as_go_reads_them(text: str, value: float) -> None:
    assert FRACTIONS.parse(text) == (value,)


@pytest.mark.parametrize("text", ["", "x", " 0.5", "0.5 ", "0.5;", "1e400", "0x", "١", "1__0"])
def test_a_percentile_that_is_no_number_is_refused_in_nsqds_words(text: str) -> None:
    with pytest.raises(ValueError, match=f"^Could not parse: {re.escape(text)}$"):
        FRACTIONS.parse(f"0.9,{text}")


def test_percentiles_on_the_command_line_are_sorted_downwards() -> None:
    assert FRACTIONS.parse("0.5,0.99") == (0.99, 0.5)


def test_a_choice_names_what_there_is_to_choose() -> None:
    kind = choice("memory", "os")
    assert kind.parse("OS") == "os"
    assert (kind.form, kind.words) == ("memory or os", ("memory", "os"))
    with pytest.raises(ValueError, match="parse error"):
        kind.parse("paper")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 2), ("t", 2), ("TRUE", 2), ("tRuE", 2), ("0", 0), ("F", 0), ("False", 0), ("Tcp-Https", 1)],
)
def test_requiring_tls_takes_gos_words_in_any_case(text: str, value: int) -> None:
    assert value == TLS_REQUIREMENT.parse(text)


def test_no_lowest_version_of_tls_is_the_default_one() -> None:
    assert TLS_VERSION.parse("") == TLS_VERSION.parse("TLS1.2") == 771
