"""The Spark package with a cluster on ::1 only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.publisher import Publisher

from tests.process import wait_until
from tests.spark.test_publisher import batch
from tests.test_ipv6 import HOST, Daemon, get


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of an nsqlookupd and of the nsqd that it names, by option."""
    named = f"--broadcast-address={HOST}"
    lookupd = Daemon(tmp_path, "nsqlookupd", named)
    nsqd = Daemon(tmp_path, "nsqd", named, f"--lookupd-tcp-address={lookupd.tcp}", f"--data-path={tmp_path}")
    wait_until(lambda: get(lookupd.http, "/nodes")["producers"], "the nsqd is registered")
    yield {"nsqdHttpAddresses": nsqd.http, "lookupdHttpAddresses": lookupd.http}
    nsqd.close()
    lookupd.close()


def test_messages_are_published(addresses: dict[str, str]) -> None:
    given = [*addresses.items(), ("nsqdHttpAddresses", addresses["nsqdHttpAddresses"].replace("]", "%1]"))]
    for option in given:
        with Publisher(SinkOptions.parse(dict([option]))) as publisher:
            publisher.submit(batch(b"one"))
    (topic,) = get(addresses["nsqdHttpAddresses"], "/stats?format=json&topic=t")["topics"]
    assert topic["message_count"] == len(given)
