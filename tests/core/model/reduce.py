"""A run of a history that is drawn at random; of one that fails, the shortest one that fails in the same way."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from random import Random

from tests.core.model.history import History, Step, steps_of

Failure = tuple[str, int | None]
"""The file and the line where it is."""


def check(elements: Sequence[str], random: Random) -> None:
    """Run a history with these elements. An error that ends it has the shortest one as a note, as lines for a test."""
    steps, seed = steps_of(elements, random), random.getrandbits(32)
    try:
        History(elements, seed).run(steps)
    except Exception as error:
        elements, steps = reduced(elements, seed, steps)
        error.add_note(f"reduced: History({elements}, {seed}).run({steps})")
        raise


def reduced(elements: Sequence[str], seed: int, steps: Sequence[Step]) -> tuple[list[str], list[Step]]:
    """Leave out steps, and elements, without which the history fails as well."""
    failure = _failure(elements, seed, steps)
    steps, size = list(steps), len(steps)
    while size:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if _failure(elements, seed, shorter) == failure:
                steps = shorter
            else:
                start += size
        size //= 2
    left = list(elements)
    for element in elements:
        fewer = [one for one in left if one != element]
        if _failure(fewer, seed, steps) == failure:
            left = fewer
    return left, steps


def _failure(elements: Sequence[str], seed: int, steps: Sequence[Step]) -> Failure | None:
    try:
        History(elements, seed).run(steps)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return frame.filename, frame.lineno
    return None
