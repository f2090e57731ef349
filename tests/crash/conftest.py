"""Brokers to be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import NsqdProcess, Start, starting


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers for the test."""
    with starting(tmp_path) as start:
        yield start


@pytest.fixture
def nsqd(start: Start) -> NsqdProcess:
    """One broker with default flags."""
    return start()


@pytest.fixture(params=["", "--durability=fsync", "--backend=sqlite", "--backend=sqlite --durability=fsync"])
def keeping(request: pytest.FixtureRequest, start: Start) -> NsqdProcess:
    """One broker of each kind that keeps what it answered."""
    return start(*request.param.split())
