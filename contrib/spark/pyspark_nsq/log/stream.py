"""
A stream from a topic's log. Spark's offset is a position for each nsqd, where to go on:
``{"http://127.0.0.1:4151": 4503599627370496}``.

Nothing is kept here: what Spark asks for again is read again, and is the same. Any number of queries read a log, and
none takes anything from another or from the topic's channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_nsq.log.rows import LogPartition, read_log
from pyspark_nsq.options.log import EARLIEST, LATEST, LogOptions, Positions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.log.client import LogClient
    from pyspark_nsq.monitoring.log_lag import LogLag


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of the log that `options` name. Every method raises ReadError when a broker cannot be asked."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._target: Positions | None = None
        self._planned: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_target": None, "_planned": None}

    @cached_property
    def _client(self) -> LogClient:
        from pyspark_nsq.log.client import LogClient

        return LogClient(self._options)

    @cached_property
    def _lag(self) -> LogLag:
        from pyspark_nsq.monitoring.log_lag import LogLag

        return LogLag(self._options.topic, lambda _topic, address, position: self._client.lag(address, position))

    def prepareForTriggerAvailableNow(self) -> None:
        from pyspark_nsq.log import plan as log_plan

        self._target = log_plan.latest(self._client, {})

    def initialOffset(self) -> Positions:
        from pyspark_nsq.log import plan as log_plan

        return log_plan.starting(self._client, self._options, LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        from pyspark_nsq.log import plan as log_plan

        if self._target is None:
            ends = log_plan.latest(self._client, start)
        else:
            ends = start | {address: max(end, start.get(address, 0)) for address, end in self._target.items()}
        self._planned = log_plan.limited(self._client, self._options, start, ends)
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs, and the figures of `monitoring.figures`. Spark only shows this."""
        return None if self._planned is None else self._lag.report(self._planned, self._client.retried)

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Raises DataLossError when the beginning is gone, unless failOnDataLoss is false."""
        from pyspark_nsq.log import plan as log_plan

        return list(log_plan.plan(self._client, self._options, start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_log(self._options, partition)

    def commit(self, end: Positions) -> None:
        """Nothing to do: the broker keeps messages as long as the topic's retention says."""


class LogBatchReader(DataSourceReader):
    """A range of the log that `options` name."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Raises ReadError, and DataLossError when the beginning is gone, unless failOnDataLoss is false."""
        from pyspark_nsq.log import plan as log_plan
        from pyspark_nsq.log.client import LogClient

        client = LogClient(self._options)
        start = log_plan.starting(client, self._options, EARLIEST)
        ends = log_plan.ending(client, self._options)
        return list(log_plan.plan(client, self._options, start, ends)) or [LogPartition("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_log(self._options, partition)
