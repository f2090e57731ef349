"""PostgreSQL for the tests of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqtw.replication.store import IReplicaStore
from tests.replication.servers import PostgresPair, opened


@pytest.fixture(scope="session")
def servers() -> Iterator[PostgresPair]:
    """A primary with a synchronous standby, which no test stops for good."""
    pair = PostgresPair()
    try:
        pair.start()
        yield pair
    finally:
        pair.close()


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    """A pair for one test, which may kill them."""
    pair = PostgresPair()
    try:
        pair.start()
        yield pair
    finally:
        pair.close()


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., IReplicaStore]]:
    """Opens stores that are closed after the test: `open_store(dsn, timeout)`."""
    stores: list[IReplicaStore] = []

    def open_one(dsn: str, timeout: float = 10.0, data_set: str = "nsqtw") -> IReplicaStore:
        stores.append(opened(tmp_path, dsn, timeout, data_set))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()
