"""One flipped bit is found from the CRC-32 alone, wherever it is."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from nsqtw.backends.bit_flip import flipped_bit


@pytest.mark.parametrize("size", [1, 2, 3, 40, 511, 512, 513, 4096, 262_144, 262_145, 1_000_000])
def test_every_single_bit_is_found(size: int) -> None:
    chance = random.Random(size)
    data = chance.randbytes(size)
    places = {0, 7, 8 * size - 1, 8 * size - 8, *(chance.randrange(8 * size) for _ in range(20))}
    for place in places:
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        assert flipped_bit(crc32(damaged) ^ crc32(data), size) == place


def test_a_bit_of_the_stored_checksum_is_no_bit_of_the_data() -> None:
    assert [flipped_bit(1 << bit, 1 << 20) for bit in range(32)] == [None] * 32


def test_no_difference_is_no_flipped_bit() -> None:
    assert flipped_bit(0, 100) is None


def test_other_damage_is_almost_never_taken_for_one_bit() -> None:
    chance = random.Random(7)
    data = chance.randbytes(2000)
    found = 0
    for _ in range(200):
        damaged = bytearray(data)
        place = chance.randrange(1500)
        damaged[place : place + 500] = chance.randbytes(500)
        found += flipped_bit(crc32(damaged) ^ crc32(data), 2000) is not None
    assert found == 0
