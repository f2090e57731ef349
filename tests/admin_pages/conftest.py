"""The cluster and the nsqadmin of the tests of nsqadmin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from tests.admin.conftest import admin, nodes, start

__all__ = ["admin", "nodes", "start"]


@pytest.fixture
def outcomes() -> Iterator[list[str]]:
    """The outcomes of the audit lines so far."""
    found: list[str] = []

    def observe(event: LogEvent) -> None:
        if str(event.get("log_format")).startswith("AUDIT"):
            found.append(event["outcome"])

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)
