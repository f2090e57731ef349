"""Hot paths do not get slower unnoticed: instructions are counted, which a busy machine does not change."""

from __future__ import annotations

import pytest

from .fixed_work import WORKS, Work
from .instructions import counted, measure, recorded, version

REGRESSION = 1.10
OTHER_VERSION = 1.5
"""A Python nobody kept figures for compiles the same code to other instructions."""

NOISE = 1.01
"""The same work takes some instructions more or fewer."""
BESIDE_V2 = [(work.name, work.name.removeprefix("v3-").removesuffix("-single")) for work in WORKS if "v3-" in work.name]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_hot_path_takes_the_instructions_it_took(work: Work) -> None:
    known = recorded()
    kept, factor = (known[version()], REGRESSION) if version() in known else (known["3.11"], OTHER_VERSION)
    now = measure(work)
    assert now <= kept[work.name] * factor, (
        f"{work.title}: {now:.2f} instructions a message, {kept[work.name]:.2f} before; "
        "if it is worth that, python -m tests.bench.instructions --write keeps the new figures"
    )


@pytest.mark.plain
@pytest.mark.parametrize(("name", "of_v2"), BESIDE_V2)
def test_v3_takes_no_more_instructions_than_v2(name: str, of_v2: str) -> None:
    works = {work.name: work for work in WORKS}
    assert measure(works[name]) <= measure(works[of_v2]) * NOISE


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
