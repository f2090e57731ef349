"""
The clients' own tests pass with our broker, but for those the table names; they come from PyPI and npm. `make clients`
runs all of them. For `make test` one client in Python and one of another language are enough: ansq itself publishes and
consumes in tests/clients.
"""

from __future__ import annotations

import pytest

from .runner import run
from .suite import Suite
from .table import ANSQ, SUITES

FORMS = [pytest.param(suite, id=name, marks=[pytest.mark.long] * (suite is ANSQ)) for name, suite in SUITES.items()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", FORMS)
def test_it_passes(suite: Suite) -> None:
    result = run(suite)
    assert result.is_good, f"{result}\n{result.said[-8000:]}"
