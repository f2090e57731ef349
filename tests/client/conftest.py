"""Fixtures of the client's tests: both event loops, and a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nsqtw.testing import Broker, broker
from tests.client.loops import LOOPS, Loop


@pytest.fixture(params=[*LOOPS])
def loop(request: pytest.FixtureRequest) -> Loop:
    """An event loop. A test that uses it runs on each."""
    return LOOPS[request.param]()


@pytest.fixture(scope="module")
def nsqd() -> Iterator[Broker]:
    """A broker for the tests of a module, which use topics of their own."""
    with broker() as running:
        yield running
