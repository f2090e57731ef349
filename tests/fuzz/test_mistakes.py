"""A check that cannot fail is none: what was broken on purpose is found."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.campaign import Found, run
from tests.fuzz.mistakes import MISTAKES, Mistake
from tests.fuzz.targets import BY_NAME

MOST_EXAMPLES = 3_000


@pytest.mark.plain  # some of the mistakes are methods of the core
@pytest.mark.parametrize("error", MISTAKES, ids=lambda error: error.name)
def test_it_is_found(error: Mistake, logged_failures: list[object]) -> None:
    with error.made(), pytest.raises(Found) as found:
        run(BY_NAME[error.target](), "mistakes", range(MOST_EXAMPLES), findings=None)
    logged_failures.clear()
    assert re.search(error.words, str(found.value))
