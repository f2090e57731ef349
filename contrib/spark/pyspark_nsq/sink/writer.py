"""The sinks: each task publishes the rows of its partition, and ends when nsqd has accepted all of them.

At least once: a task that Spark runs again, a lost answer, and a micro-batch that is repeated after a crash publish
rows twice. The rows that a failed job has published stay published.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_nsq.monitoring.receiver import Origin
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.commits import NsqCommit, tell_sum
from pyspark_nsq.sink.packing import Packer, Request, deferred_request
from pyspark_nsq.sink.rows import Columns, RowReader
from pyspark_nsq.sink.token_bucket import TokenBucket

if TYPE_CHECKING:
    import pyarrow as pa

#: Most bytes that a task holds for topics whose requests are not full yet.
_MAX_HELD_BYTES = 16 * 1024 * 1024


def publish_partition(options: SinkOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> NsqCommit:
    """Publish one partition. Nothing is in flight when this returns or raises.

    Raises RowError for a row that cannot be a message, PublishError for messages that no nsqd has accepted.
    """
    from pyspark_nsq.sink.publisher import Publisher

    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
    with Publisher(options, first_address=partition + attempt) as publisher:
        bucket = TokenBucket(options.max_rows_per_second, options.burst_rows) if options.max_rows_per_second else None
        for request in requests_of(options, columns, batches, partition):
            if bucket is not None:
                bucket.take(request.rows)
            publisher.submit(request)
    return NsqCommit(partition=partition, attempt=attempt, origin=Origin.of_task()).add(publisher.tally)


def requests_of(
    options: SinkOptions, columns: Columns, batches: Iterator[pa.RecordBatch], partition: int = 0
) -> Iterator[Request]:
    """Yield the requests that publish one partition. Raises RowError for a row that cannot be a message."""
    reader = RowReader(columns, options, partition)
    packer = Packer(options.batch_size, options.batch_bytes, _MAX_HELD_BYTES, options.channel)
    for batch in batches:
        messages = reader.read(batch)
        for topic, entries in messages.now:
            yield from packer.extend(topic, entries)
        for topic, body, defer_ms, headers in messages.later:
            yield deferred_request(topic, body, defer_ms, options.channel, headers)
    yield from packer.flush()


class NsqBatchWriter(DataSourceArrowWriter):
    """The sink of a batch. It is made on the driver, pickled, and sent to every task."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NsqCommit:
        """Publish a partition, as `publish_partition`."""
        return publish_partition(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the figures. Spark calls this once, after the last task, in a process of its own."""
        tell_sum("published", None, messages, show=self._options.show_progress)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the figures of a failed job. Its published rows stay published."""
        tell_sum("failed", None, messages, show=self._options.show_progress)


class NsqStreamWriter(DataSourceStreamArrowWriter):
    """The sink of a stream, for each micro-batch."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NsqCommit:
        """Publish a partition, as `publish_partition`."""
        return publish_partition(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report the figures of a micro-batch. After a crash Spark may call this again for the same one."""
        tell_sum("published", batchId, messages, show=self._options.show_progress)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report the figures of a failed micro-batch. The next attempt publishes its rows again."""
        tell_sum("failed", batchId, messages, show=self._options.show_progress)
