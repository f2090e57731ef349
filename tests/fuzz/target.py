"""What a target of the fuzzing is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from zlib import crc32

from attrs import frozen


@frozen
class Bound:
    """What an input may cost: so much for any, and so much for each byte of it."""

    base: int
    per_byte: int

    def of(self, data: bytes) -> int:
        """For this input."""
        return self.base + self.per_byte * len(data)


class Target:
    """
    Something that reads what others wrote. An input is bytes, and all that is done with it follows from them: so one
    that failed fails again.
    """

    name: str
    kind: str
    """What the inputs are, for the table in the docs."""
    tokens: Sequence[bytes] = ()
    """Words of its language."""
    steps = Bound(100_000, 1_000)
    memory = Bound(4 << 20, 200)
    examples = 1_000
    """How many are tried with every change; so many that it takes some seconds."""

    def make(self, chance: Random) -> bytes:
        """An input by the grammar, with or without faults."""
        raise NotImplementedError

    def run(self, data: bytes) -> str:
        """Try it. A word for what came of it; anything that is raised is a finding."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind."""


def chance_of(data: bytes) -> Random:
    """For what a target decides by itself: where an input is cut, for instance."""
    return Random(crc32(data))
