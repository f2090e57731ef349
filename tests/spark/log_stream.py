"""A stream from logs, driven in this process as Spark drives one: offsets travel as JSON, partitions are read."""

from __future__ import annotations

import json
from typing import Any

from pyspark_nsq.log.stream import LogStreamReader
from pyspark_nsq.options.log import LogOptions

from tests.process import NsqdProcess
from tests.wire import HOST

Rows = list[tuple[str, bytes]]


def address(broker: NsqdProcess) -> str:
    return f"{HOST}:{broker.http_port}"


def url(broker: NsqdProcess) -> str:
    return f"http://{address(broker)}"


def keep(broker: NsqdProcess, *topics: str) -> None:
    """Create topics that keep their messages without a channel."""
    for topic in topics:
        broker.create(topic)
        broker.order(f"/v2/topic/retention?topic={topic}&time=1h")


def delete(broker: NsqdProcess, topic: str) -> None:
    broker.order(f"/topic/delete?topic={topic}")


def options(*brokers: NsqdProcess, **more: str) -> dict[str, str]:
    """Options that do not wait long for an nsqd that is down."""
    given = {"replay": "log", "retries": "1", "backoffMs": "1"}
    if brokers:
        given["nsqdHttpAddresses"] = ",".join(address(broker) for broker in brokers)
    return given | more


def stream_options(*brokers: NsqdProcess, **more: str) -> dict[str, str]:
    """Options of a stream that looks for topics again with each micro-batch, if it looks for any."""
    given = options(*brokers, **more)
    looks = "subscribePattern" in given or "lookupdHttpAddresses" in given
    return {"topicDiscoveryMs": "0"} | given if looks else given


class LogStream:
    """
    One query, which looks for topics again with each micro-batch unless `given` says otherwise. `offset` is where it
    goes on, also for the next one that gets it.
    """

    def __init__(self, given: dict[str, str], offset: dict[str, Any] | None = None) -> None:
        self._reader = LogStreamReader(LogOptions.parse(stream_options(**given)))
        self.offset = self._reader.initialOffset() if offset is None else offset

    def step(self) -> Rows:
        """Return the topic and the value of each row of the next micro-batch."""
        end = json.loads(json.dumps(self._reader.latestOffset(self.offset, self._reader.getDefaultReadLimit())))
        rows: Rows = []
        for partition in self._reader.partitions(self.offset, end):
            for batch in self._reader.read(partition):
                columns = batch.column("topic").to_pylist(), batch.column("value").to_pylist()
                rows += zip(*columns, strict=True)
        self.offset = end
        return sorted(rows)

    def run_available(self) -> list[Rows]:
        """Return the micro-batches of a run with the trigger availableNow."""
        self._reader.prepareForTriggerAvailableNow()
        batches: list[Rows] = []
        while True:
            before = self.offset
            batches.append(self.step())
            if self.offset == before:
                assert batches.pop() == []
                return batches
