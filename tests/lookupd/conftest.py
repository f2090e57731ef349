"""Processes of nsqlookupd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import LookupdProcess

StartLookupd = Callable[..., LookupdProcess]
"""Starts an nsqlookupd with the flags it is given."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartLookupd]:
    """Starts nsqlookupds; none outlives the test, or dies of its own failure in it."""
    started: list[LookupdProcess] = []

    def start_one(*flags: str) -> LookupdProcess:
        process = LookupdProcess(tmp_path / str(len(started)), *flags)
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.close()
    for process in started:
        process.assert_no_traceback()
