"""The batch sink: each task publishes its partition's rows, and is done when nsqd has taken them all.

At least once: a task that Spark runs again, or an answer that got lost, publishes rows twice. A job that
fails leaves what it had published.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_nsq.options import Options
from pyspark_nsq.packing import Packer, deferred_request
from pyspark_nsq.rows import Columns, RowReader

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("pyspark_nsq")

#: What one task may hold for topics whose requests are not full yet.
_MAX_HELD_BYTES = 16 * 1024 * 1024


@dataclass
class NsqCommit(WriterCommitMessage):
    """What one task has published."""

    partition: int
    attempt: int
    rows: int
    requests: int
    retried: int
    body_bytes: int


class NsqBatchWriter(DataSourceArrowWriter):
    """Made on the driver, sent to every task; must pickle."""

    def __init__(self, options: Options, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NsqCommit:
        """Publish one partition. Nothing is in flight when this returns or raises.

        Raises RowError for a row that cannot be a message, PublishError for messages no nsqd has taken.
        """
        from pyspark_nsq.publisher import Publisher

        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        reader = RowReader(self._columns, self._options, partition)
        packer = Packer(self._options.batch_size, self._options.batch_bytes, _MAX_HELD_BYTES)
        with Publisher(self._options, first_address=partition + attempt) as publisher:
            for batch in iterator:
                messages = reader.read(batch)
                for topic, entries in messages.now:
                    for request in packer.extend(topic, entries):
                        publisher.submit(request)
                for topic, body, defer_ms in messages.later:
                    publisher.submit(deferred_request(topic, body, defer_ms))
            for request in packer.flush():
                publisher.submit(request)
        tally = publisher.tally
        return NsqCommit(partition, attempt, tally.rows, tally.requests, tally.retried, tally.body_bytes)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs once, after the last task, in a process of its own."""
        done = [message for message in messages if isinstance(message, NsqCommit)]
        _log.info(
            "published %d messages of %d partitions in %d requests, %d of them sent again",
            sum(task.rows for task in done),
            len(done),
            sum(task.requests for task in done),
            sum(task.retried for task in done),
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed. What has been published stays published."""
        done = [message for message in messages if isinstance(message, NsqCommit)]
        _log.warning(
            "the job failed; what it has published stays, %d messages of finished tasks and some of others",
            sum(task.rows for task in done),
        )
