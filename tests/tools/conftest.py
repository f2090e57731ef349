"""Fixtures of the tools' tests: a broker, a topic, and tools as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.testing import Broker, broker
from tests.tools.nsq_tool import Start, ToolProcess


@pytest.fixture(scope="module")
def nsqd() -> Iterator[Broker]:
    """A broker for the tests of a module, which use topics of their own."""
    with broker() as running:
        yield running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts tools, none of which outlives the test."""
    started: list[ToolProcess] = []

    def start_tool(tool: str, *flags: str) -> ToolProcess:
        process = ToolProcess(tmp_path, tool, *flags)
        started.append(process)
        return process

    yield start_tool
    for process in started:
        process.close()
