"""Fixtures of the tests of `nsqtw`: a config file of the test's own, and a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.testing import Broker, broker


@pytest.fixture
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the config file. No test reads that of the user."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("NSQTW_CONTEXTS", str(path))
    monkeypatch.delenv("NSQTW_CONTEXT", raising=False)
    return path


@pytest.fixture(scope="module")
def nsqd() -> Iterator[Broker]:
    """A broker for the tests of a module, which use topics of their own."""
    with broker() as running:
        yield running
