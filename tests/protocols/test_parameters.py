"""Numbers on a command line: digits only, 64 bits, wrapped without a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.protocols.parameters import decimal, duration_ns, signed64

ALL_BITS = 2**64 - 1


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (b"", 0),
        (b"0", 0),
        (b"007", 7),
        (b"2500", 2500),
        (b"9223372036854775808", 2**63),
        (b"18446744073709551615", ALL_BITS),
        (b"18446744073709551616", 0),
        (b"18446744073709551617", 1),
        (b"0" * 100 + b"12", 12),
    ],
)
def test_numbers(raw: bytes, number: int) -> None:
    assert decimal(raw) == number


@pytest.mark.parametrize(
    "raw",
    [b"-1", b"+1", b" 1", b"1 ", b"1\n", b"1\r", b"\t1", b"1.0", b"1e3", b"0x10", b"1_000", b"x", b"1\x00", b"\xff"]
    + ["\uff11".encode(), "\u0661".encode(), "\u00b2".encode()],
)
def test_what_is_no_number(raw: bytes) -> None:
    assert decimal(raw) is None


@given(st.text("0123456789", max_size=60))
def test_numbers_wrap_at_64_bits(digits: str) -> None:
    assert decimal(digits.encode()) == int(digits or "0") % 2**64


def test_a_line_full_of_digits_is_a_number() -> None:
    ones = 16384 * b"1"
    assert decimal(ones) == (10**16384 - 1) // 9 % 2**64
    assert decimal(ones + b"x") is None


@pytest.mark.parametrize(
    ("unsigned", "signed"), [(0, 0), (1, 1), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (ALL_BITS, -1)]
)
def test_the_same_bits_signed(unsigned: int, signed: int) -> None:
    assert signed64(unsigned) == signed


@pytest.mark.parametrize(
    ("milliseconds", "nanoseconds"),
    [
        (0, 0),
        (1, 10**6),
        (3_600_000, 3600 * 10**9),
        (9_223_372_036_854, 9_223_372_036_854 * 10**6),
        (9_223_372_036_855, 9_223_372_036_855 * 10**6 - 2**64),
        (18_446_744_073_710, 448_384),
        (2**58, 0),
        (ALL_BITS, -(10**6)),
    ],
)
def test_durations_wrap_in_nanoseconds(milliseconds: int, nanoseconds: int) -> None:
    assert duration_ns(milliseconds) == nanoseconds


@given(st.integers(0, ALL_BITS))
def test_durations_are_signed_64_bit_numbers(milliseconds: int) -> None:
    nanoseconds = duration_ns(milliseconds)
    assert -(2**63) <= nanoseconds < 2**63
    assert (nanoseconds - milliseconds * 10**6) % 2**64 == 0
