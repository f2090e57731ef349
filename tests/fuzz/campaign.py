"""
Many examples of a target, and what came of them.

Example number N of a seed is always the same, whatever the ones before it did: half of them come from the target's
grammar, the others are mutations of these and of the inputs that are kept in `seeds`. A campaign that explores also
goes on from those of its examples that reached lines of nsqtw where none was before.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import CodeType
from zlib import crc32

from attrs import define, field

from tests.fuzz.meter import Broken, Endless, Meter
from tests.fuzz.mutation import LONGEST, mutated
from tests.fuzz.target import Target

SEEDS = Path(__file__).parent / "seeds"
FINDINGS = Path(".fuzz")
"""Where failing inputs are written: in the directory that the run was started in."""
_SHRINK_TRIES = 400
_KEPT = 500
_WEIGHED = 10
"""Of so many examples one has its memory counted to the byte."""
_MOST_GROWTH = 64 << 20
"""Bytes by which the process may grow in one example."""


class Found(AssertionError):
    """An input for which something does not hold that must. The text says which, and how to see it again."""

    def __init__(self, target: Target, data: bytes, why: str, file: Path | None) -> None:
        lines = [f"{target.name}: {why}", f"input ({len(data)} bytes): {_shown(data)}"]
        if file is not None:
            lines.append(f"again: python -m tests.fuzz replay {target.name} {file}")
        super().__init__("\n".join(lines))
        self.data = data
        self.why = why


@define
class Tally:
    """What came of the examples of one target."""

    examples: int = 0
    outcomes: Counter[str] = field(factory=Counter)
    most_steps: int = 0
    most_memory: int = 0


def seeds_of(target: Target) -> list[bytes]:
    """The inputs that are kept in the repository, in the order of their names."""
    return [path.read_bytes() for path in sorted((SEEDS / target.name).glob("*"))]


def example(target: Target, seed: str, number: int, starts: Sequence[bytes]) -> bytes:
    """The input of this number. Half of all are of the grammar as they are."""
    chance = Random(f"{seed} {target.name} {number}")
    made = target.make(chance)[:LONGEST]
    kind = chance.random()
    if kind < 0.5:
        return made
    start = chance.choice(starts) if starts and kind < 0.8 else made
    return mutated(chance, start, target.tokens, [*starts, made])


def attempt(
    target: Target,
    data: bytes,
    tally: Tally,
    *,
    weighs: bool = True,
    lines: set[tuple[CodeType, int]] | None = None,
) -> None:
    """One example. Broken, Endless, or what the target raised, when something does not hold."""
    meter = Meter(target.steps.of(data), weighs=weighs, lines=lines)
    with meter.running():
        outcome = target.run(data)
    if meter.growth > _MOST_GROWTH:
        raise Broken(f"the process grew by {meter.growth} bytes")
    if meter.peak > target.memory.of(data):
        raise Broken(f"took {meter.peak} bytes of memory, and may take {target.memory.of(data)}")
    tally.examples += 1
    tally.outcomes[outcome] += 1
    tally.most_steps = max(tally.most_steps, meter.steps)
    tally.most_memory = max(tally.most_memory, meter.peak)


def run(target: Target, seed: str, numbers: Iterable[int], findings: Path | None = FINDINGS) -> Tally:
    """
    The seeds as they are, and the examples with these numbers. Found for the first that fails; with `findings` it is
    made smaller and written there.
    """
    seeds, tally = seeds_of(target), Tally()
    for data in seeds:
        _try(target, data, tally, findings)
    for number in numbers:
        _try(target, example(target, seed, number, seeds), tally, findings, weighs=number % _WEIGHED == 0)
    return tally


def explore(target: Target, seed: str, goes_on: Callable[[], bool]) -> Tally:
    """Examples as long as it `goes_on`, starting also from those that reached something new."""
    kept, tally = seeds_of(target), Tally()
    known: set[tuple[CodeType, int]] = set()
    for data in kept:
        _try(target, data, tally, FINDINGS, lines=known)
    number = 0
    while goes_on():
        data = example(target, seed, number, kept)
        lines: set[tuple[CodeType, int]] = set()
        _try(target, data, tally, FINDINGS, weighs=number % _WEIGHED == 0, lines=lines)
        if not lines <= known and len(kept) < _KEPT:
            kept.append(data)
        known |= lines
        number += 1
    return tally


def _try(
    target: Target,
    data: bytes,
    tally: Tally,
    findings: Path | None,
    *,
    weighs: bool = True,
    lines: set[tuple[CodeType, int]] | None = None,
) -> None:
    try:
        attempt(target, data, tally, weighs=weighs, lines=lines)
    except (Exception, Endless) as failure:
        file = None
        if findings is not None:
            data = shrunk(target, data, type(failure))
            file = _kept(target, data, findings)
        raise Found(target, data, told(failure), file) from failure


def shrunk(target: Target, data: bytes, kind: type[BaseException]) -> bytes:
    """A smaller input, if there is one, that fails in the same way."""
    tries = _SHRINK_TRIES
    size = max(1, len(data) // 2)
    while tries and size:
        for smaller in _without_parts(data, size):
            if not tries:
                break
            tries -= 1
            if _fails(target, smaller, kind):
                data = smaller
                break
        else:
            size //= 2
    return data


def _without_parts(data: bytes, size: int) -> Iterator[bytes]:
    return (data[:at] + data[at + size :] for at in range(0, len(data), size))


def _fails(target: Target, data: bytes, kind: type[BaseException]) -> bool:
    try:
        attempt(target, data, Tally())
    except (Exception, Endless) as failure:
        return type(failure) is kind
    return False


def told(failure: BaseException) -> str:
    """What went wrong, with the place for what nobody foresaw."""
    if isinstance(failure, Broken):
        return str(failure)
    return "".join(traceback.format_exception(failure)).rstrip()


def _kept(target: Target, data: bytes, findings: Path) -> Path:
    findings.mkdir(parents=True, exist_ok=True)
    path = findings / f"{target.name}-{crc32(data):08x}"
    path.write_bytes(data)
    return path


def _shown(data: bytes) -> str:
    return repr(data if len(data) <= 400 else data[:400] + b"...")
