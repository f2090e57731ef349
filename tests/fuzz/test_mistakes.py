"""A check that cannot fail is none: what was broken on purpose is found."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.campaign import Found, run
from tests.fuzz.mistakes import MISTAKES, Mistake
from tests.fuzz.targets import BY_NAME

MOST_EXAMPLES = 3_000


@pytest.mark.plain  # some of the mistakes are methods of the core
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_it_is_found(mistake: Mistake, logged_failures: list[object]) -> None:
    with mistake.made(), pytest.raises(Found) as found:
        run(BY_NAME[mistake.target](), "mistakes", range(MOST_EXAMPLES), findings=None)
    logged_failures.clear()
    assert re.search(mistake.words, str(found.value))
