"""The clients' own tests pass with our broker, but for those the table names; they come from PyPI and npm."""

from __future__ import annotations

import pytest

from .runner import run
from .suite import Suite
from .table import SUITES


@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_it_passes(suite: Suite) -> None:
    result = run(suite)
    assert result.is_good, f"{result}\n{result.said[-8000:]}"
