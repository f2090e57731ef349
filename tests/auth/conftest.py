"""Brokers with an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import NsqdProcess

Start = Callable[..., NsqdProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers, each on a data path of its own; none outlives the test, or dies of its own failure in it."""
    started: list[NsqdProcess] = []

    def start_one(*flags: str) -> NsqdProcess:
        process = NsqdProcess(tmp_path / str(len(started)), *flags)
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.close()
        process.assert_no_traceback()
