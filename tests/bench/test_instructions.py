"""Hot paths do not get slower unnoticed: instructions are counted, which a busy machine does not change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .fixed_work import WORKS, Work
from .instructions import counted, recorded, version

Figures = dict[str, float]

REGRESSION = 1.02
OTHER_VERSION = 1.5
"""A Python nobody kept figures for compiles the same code to other instructions."""

NOISE = 1.01
"""The same work takes some instructions more or fewer."""
BESIDE_V2 = [(work.name, work.name.removeprefix("v3-").removesuffix("-single")) for work in WORKS if "v3-" in work.name]


@pytest.fixture(scope="module")
def now() -> Figures:
    """Instructions a message, counted without pytest: it rewrites the assertions of nsqtw, which is a plugin of it."""
    command = [sys.executable, "-m", "tests.bench.instructions", "--json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    figures: Figures = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_hot_path_takes_the_instructions_it_took(work: Work, now: Figures) -> None:
    known = recorded()
    kept, factor = (known[version()], REGRESSION) if version() in known else (known["3.11"], OTHER_VERSION)
    assert now[work.name] <= kept[work.name] * factor, (
        f"{work.title}: {now[work.name]:.2f} instructions a message, {kept[work.name]:.2f} before; "
        "if it is worth that, python -m tests.bench.instructions --write keeps the new figures"
    )


@pytest.mark.plain
@pytest.mark.parametrize(("name", "of_v2"), BESIDE_V2)
def test_v3_takes_no_more_instructions_than_v2(name: str, of_v2: str, now: Figures) -> None:
    assert now[name] <= now[of_v2] * NOISE


def test_work_done_twice_is_noticed() -> None:
    def once() -> None:
        decoded("[1, 2, 3]")

    def twice() -> None:
        once()
        once()

    assert counted(twice) == 2 * counted(once) > 0


def decoded(text: str) -> object:
    """Runs Python code that is not a test's."""
    import json.decoder

    return json.decoder.JSONDecoder().decode(text)
