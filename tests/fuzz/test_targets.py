"""The part of the fuzzing that every change goes through: the seeds, and the same examples each time."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.campaign import run
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SEED = os.environ.get("FUZZ_SEED", "1")


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_every_input_is_answered_or_refused(kind: type[Target]) -> None:
    target = kind()
    tally = run(target, SEED, range(target.examples))
    assert tally.examples >= target.examples
    assert len(tally.outcomes) > 1, f"all of them came to the same: {tally.outcomes}"
