"""The V2 codec alone: what it finds in some bytes does not depend on how they are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any

from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.commands import TOKENS, command
from tests.protocols.feeding import Limits, fed

_MOST_MESSAGES = (Limits.max_body_size - 4) // 5
_BYTE_BY_BYTE = 300
"""The longest input that is fed so."""


class Codec(Target):
    name = "codec"
    kind = "bytes of a V2 client, whole, in pieces and byte by byte, to the codec alone"
    examples = 1200
    tokens = TOKENS
    steps = Bound(2_000, 150)
    memory = Bound(1 << 20, 400)

    def make(self, chance: Random) -> bytes:
        return b"".join(command(chance) for _ in range(chance.randint(1, 8)))

    def run(self, data: bytes) -> str:
        found, codec = fed(data, limits=Limits)
        end = str(codec.interrupted())
        _check_bounds(found)
        chance = chance_of(data)
        ways = [pieces(data, [chance.randrange(len(data) + 1) for _ in range(4)])]
        if len(data) <= _BYTE_BY_BYTE:
            ways.append([data[at : at + 1] for at in range(len(data))])
        for cut in ways:
            other, codec = fed(*cut, limits=Limits)
            if other != found:
                raise Broken(f"in {len(cut)} pieces it is {other}, whole it is {found}")
            if not _refused(found) and str(codec.interrupted()) != end:
                raise Broken(f"in {len(cut)} pieces it ends with {codec.interrupted()}, whole with {end}")
        return "refused" if _refused(found) else "cut into commands" if found else "waits for more"


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data`, cut at these places."""
    places = [0, *sorted(cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places) if start < stop]


def _check_bounds(found: list[Any]) -> None:
    """No body is larger than it may be."""
    for one in found:
        if not isinstance(one, str):
            verb, _, payload = one
            limit = Limits.max_body_size if verb in (b"IDENTIFY", b"AUTH") else Limits.max_msg_size
            if any(not 0 < len(body) <= limit for body in payload) or len(payload) > _MOST_MESSAGES:
                raise Broken(f"beyond the limits: {one}")


def _refused(found: list[object]) -> bool:
    return bool(found) and isinstance(found[-1], str)
