"""
Location of a single flipped bit from a CRC-32.

CRC-32 is linear: the computed checksum XOR the stored one depends only on the flipped bits and on their distance from
the end. For one bit that difference is x^(32 + distance in bits) modulo the polynomial. The polynomial is primitive, so
the distance is unique in anything shorter than 512 MB, and it is the discrete logarithm of the difference.

Up to 256 KB, which is all but single large messages, it is found with baby steps and giant steps: the difference is
extended by zero bytes, one at a time, with the library's CRC-32, until it is in a table: 0.03 ms. Beyond that the order
of the group helps: 2^32 - 1 has small prime factors only, so the logarithm takes a few milliseconds (Pohlig-Hellman),
whatever the size of the data.

Damage of several bits has an almost random difference: the probability that it equals the one of a single bit in n
bytes is n / 2^29, which is 1 in 32,000 for 16 KB. Callers must check what else can be checked.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from nsqtw.backends.checksum import crc32

_POLYNOMIAL: Final = 0xEDB88320
"""Reflected: the highest bit is the coefficient of x^0."""
_ONE: Final = 1 << 31
_X: Final = 1 << 30
_ORDER: Final = (1 << 32) - 1
_PRIMES: Final = (3, 5, 17, 257, 65537)
_CRC_BITS: Final = 32
_STEP: Final = 128
_TABLE_BYTES: Final = 2048 * _STEP


def flipped_bit(difference: int, size: int) -> int | None:
    """
    The position of the one bit that was flipped in `size` bytes, as 8 * byte + bit (bit 0 is the lowest); `difference`
    is the checksum found XOR the checksum stored. None when no single bit makes this difference.
    """
    if difference == 0:
        return None
    if size <= _TABLE_BYTES:
        return _near_bit(difference, size)
    distance = (_logarithm(difference) - _CRC_BITS) % _ORDER
    if distance >= 8 * size:
        return None
    return 8 * (size - 1 - distance // 8) + 7 - distance % 8


def _near_bit(difference: int, size: int) -> int | None:
    """Return the position of a bit, from the end, when the table covers it."""
    marks = _marks()
    state = difference
    for moved in range(_STEP):
        mark = marks.get(state)
        if mark is not None:
            from_end = mark[0] - moved
            if 0 <= from_end < size:
                return 8 * (size - 1 - from_end) + mark[1]
            return None
        state = _moved_on(state, b"\0")
    return None


@cache
def _marks() -> dict[int, tuple[int, int]]:
    """The difference that a bit of a byte makes, for bytes in steps of _STEP: how far it is from the end, and which."""
    marks: dict[int, tuple[int, int]] = {}
    zeros = bytes(_STEP)
    for bit in range(8):
        state = crc32(bytes([1 << bit])) ^ crc32(b"\0")
        for from_end in range(0, _TABLE_BYTES + _STEP, _STEP):
            marks[state] = (from_end, bit)
            state = _moved_on(state, zeros)
    return marks


def _moved_on(difference: int, zeros: bytes) -> int:
    """Return the difference with the bytes `zeros` behind it."""
    return crc32(zeros, difference ^ _ORDER) ^ _ORDER


def _times(a: int, b: int) -> int:
    product = 0
    while b:
        if b & _ONE:
            product ^= a
        b = b << 1 & _ORDER
        a = a >> 1 ^ (_POLYNOMIAL if a & 1 else 0)
    return product


def _power(base: int, exponent: int) -> int:
    result = _ONE
    while exponent:
        if exponent & 1:
            result = _times(result, base)
        base = _times(base, base)
        exponent >>= 1
    return result


def _logarithm(value: int) -> int:
    """The exponent of x, below 2^32 - 1, that gives `value`."""
    exponent = 0
    for prime in _PRIMES:
        rest = _ORDER // prime
        part = _logarithm_in_subgroup(_power(value, rest), prime)
        # Chinese remainder theorem: the factors are distinct primes.
        exponent += part * rest * pow(rest, -1, prime)
    return exponent % _ORDER


def _logarithm_in_subgroup(value: int, prime: int) -> int:
    """Baby steps, giant steps."""
    steps, small, giant = _steps(prime)
    for number in range(steps):
        if value in small:
            return (number * steps + small[value]) % prime
        value = _times(value, giant)
    raise AssertionError("every value other than 0 is a power of x")


@cache
def _steps(prime: int) -> tuple[int, dict[int, int], int]:
    generator = _power(_X, _ORDER // prime)
    steps = int(prime**0.5) + 1
    small: dict[int, int] = {}
    power = _ONE
    for exponent in range(steps):
        small.setdefault(power, exponent)
        power = _times(power, generator)
    # Dividing by generator^steps is multiplying by its inverse.
    return steps, small, _power(generator, prime - steps % prime)
