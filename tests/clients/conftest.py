"""A broker for clients that others wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import NsqdProcess


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A running broker with default flags, which must stop cleanly after all that was done with it."""
    process = NsqdProcess(tmp_path)
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()
