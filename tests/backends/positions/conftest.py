"""A positions.db that is open, for the tests of what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.backends.positions.store import Positions


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "positions.db")


@pytest.fixture
def positions(path: str) -> Iterator[Positions]:
    positions = Positions(path)
    positions.load()
    yield positions
    positions.close(False)
