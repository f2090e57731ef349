"""The pytest plugin of nsqtw: the fixture `nsq_broker`. pytest loads it in every suite, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nsqtw.testing.process import Broker


@pytest.fixture
def nsq_broker() -> Iterator[Broker]:
    """A running broker with an empty data path (`nsqtw.testing.broker`)."""
    from nsqtw.testing.process import broker

    with broker() as running:
        yield running
