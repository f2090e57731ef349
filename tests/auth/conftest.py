"""Brokers with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import Start, starting


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers for the test."""
    with starting(tmp_path) as start:
        yield start
