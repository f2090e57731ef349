"""
The clients' own tests pass with our broker, but for those the table names; they come from PyPI and npm.

Most of these tests wait for something, so the suites run beside each other, but for those that need the same ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from .runner import Result, run
from .suite import Suite
from .table import SUITES


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Future[Result]]]:
    """The results to come of all suites."""
    with ExitStack() as stack:
        one_by_one = stack.enter_context(ThreadPoolExecutor(1))
        beside = stack.enter_context(ThreadPoolExecutor())
        yield {name: (one_by_one if suite.ports else beside).submit(run, suite) for name, suite in SUITES.items()}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_it_passes(suite: Suite, results: dict[str, Future[Result]]) -> None:
    result = results[suite.name].result()
    assert result.is_good, f"{result}\n{result.said[-8000:]}"
