"""Changes to bytes that know nothing of what they mean."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

LONGEST = 1 << 17
"""No input grows beyond this."""
_MOST_CHANGES = 4
_RUN = 64
_NUMBERS = (0, 1, -1, 2, 3, 4, 5, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_WIDTHS = ((">B", 0xFF), (">H", 0xFFFF), (">I", 0xFFFF_FFFF), ("<I", 0xFFFF_FFFF), (">Q", 2**64 - 1), ("<Q", 2**64 - 1))

_Change = Callable[[Random, bytes], bytes]


def mutated(chance: Random, data: bytes, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """`data` with some changes; `tokens` are words of its language, `others` inputs of the same kind."""
    for _ in range(chance.randint(1, _MOST_CHANGES)):
        choice = chance.randrange(len(_CHANGES) + 3)
        if choice < len(_CHANGES):
            data = _CHANGES[choice](chance, data)
        elif choice < len(_CHANGES) + 2 and tokens:
            data = _with_token(chance, data, chance.choice(tokens))
        elif others:
            data = _spliced(chance, data, chance.choice(others))
    return data[:LONGEST]


def _place(chance: Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def _run(chance: Random, data: bytes) -> tuple[int, int]:
    start = _place(chance, data)
    return start, min(len(data), start + chance.randint(1, _RUN))


def _flipped(chance: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _overwritten(chance: Random, data: bytes) -> bytes:
    at = _place(chance, data)
    new = chance.randbytes(chance.randint(1, 4))
    return data[:at] + new + data[at + len(new) :]


def _inserted(chance: Random, data: bytes) -> bytes:
    at = _place(chance, data)
    return data[:at] + chance.randbytes(chance.randint(1, 8)) + data[at:]


def _cut(chance: Random, data: bytes) -> bytes:
    start, stop = _run(chance, data)
    return data[:start] + data[stop:]


def _doubled(chance: Random, data: bytes) -> bytes:
    start, stop = _run(chance, data)
    return data[:stop] + data[start:stop] * chance.choice((1, 1, 2, 9)) + data[stop:]


def _ended(chance: Random, data: bytes) -> bytes:
    return data[: _place(chance, data)]


def _numbered(chance: Random, data: bytes) -> bytes:
    """A number of some width is put over what is there."""
    form, mask = chance.choice(_WIDTHS)
    new = struct.pack(form, (chance.choice(_NUMBERS) + chance.choice((0, 0, -1, 1))) & mask)
    at = _place(chance, data)
    return data[:at] + new + data[at + len(new) :]


def _repeated(chance: Random, data: bytes) -> bytes:
    """One byte many times."""
    at = _place(chance, data)
    byte = data[at : at + 1] or b"\0"
    return data[:at] + byte * chance.choice((16, 300, 5000, 20_000)) + data[at:]


_CHANGES: tuple[_Change, ...] = (
    _flipped,
    _flipped,
    _overwritten,
    _inserted,
    _cut,
    _doubled,
    _ended,
    _numbered,
    _repeated,
)


def _with_token(chance: Random, data: bytes, token: bytes) -> bytes:
    at = _place(chance, data)
    return data[:at] + token + data[at + chance.choice((0, len(token))) :]


def _spliced(chance: Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(chance, data)] + other[_place(chance, other) :]
