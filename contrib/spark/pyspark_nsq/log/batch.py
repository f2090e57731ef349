"""A batch of topics' logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_nsq.errors import OptionError
from pyspark_nsq.log.filters import Bounds, are_pushed
from pyspark_nsq.log.rows import LogPartition, read_log
from pyspark_nsq.options.log import EARLIEST, LATEST, LogOptions

if TYPE_CHECKING:
    import pyarrow as pa


class LogBatchReader(DataSourceReader):
    """Reads ranges of the logs that `options` select."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Return the partitions.

        Raises ReadError, and if failOnDataLoss is true OptionError for an unknown topic, and DataLossError for a lost
        beginning, and for messages that no log has.
        """
        from pyspark_nsq.log import plan as log_plan
        from pyspark_nsq.log.client import LogClient
        from pyspark_nsq.log.discovery import Discovery
        from pyspark_nsq.log.retention import warn_of_missing

        client = LogClient(self._options)
        found = Discovery(client, self._options).logs()[0]
        logs = [log for log in found if self._bounds.has_log(log)]
        start = log_plan.starting(client, self._options, logs, EARLIEST)
        ends = log_plan.ending(client, self._options, logs)
        log_plan.check_topics(self._options, {*found} - {*logs} | {*ends})
        warn_of_missing(client, ends, fails=self._options.fail_on_data_loss)
        start, ends = log_plan.narrowed(client, self._bounds, start, ends)
        return list(log_plan.plan(client, self._options, start, ends)) or [LogPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_log(self._options, partition)


class FilteredLogBatchReader(LogBatchReader):
    """Reads a batch without positions that the query's pushed filters exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters. Spark applies all of them, too."""
        self._bounds = Bounds.of(filters, self._options.timestamp_slack_ms)
        return filters


def log_batch_reader(options: LogOptions) -> LogBatchReader:
    """Return a reader, which accepts filters with the option `pushFilters` in a session that pushes them.

    Raises OptionError for a batch that would have no rows.
    """
    if options.starting_offsets == LATEST:
        raise OptionError(
            '"startingOffsets" is "latest", behind which a batch finds nothing; set "earliest", positions or '
            '"startingTimestamp", or read a stream'
        )
    return FilteredLogBatchReader(options) if options.push_filters and are_pushed() else LogBatchReader(options)
