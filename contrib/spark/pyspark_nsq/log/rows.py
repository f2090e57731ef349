"""The rows that a read of a log gives to Spark."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from pyspark_nsq.errors import DataLossError
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.progress import tell

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.log.client import Part
    from pyspark_nsq.log.sections import Cut

LOG_SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("nsqd", StringType()),
        StructField("position", LongType()),
        StructField("due", TimestampType()),
    ]
)


class LogPartition(InputPartition):
    """The positions from `start` to before `end` on one nsqd."""

    def __init__(self, address: str, start: int, end: int) -> None:
        self.address, self.start, self.end = address, start, end


def read_log(options: LogOptions, partition: LogPartition) -> Iterator[pa.RecordBatch]:
    """
    The rows of a partition. While one request's rows are with Spark, the next is on its way. Raises ReadError, and
    DataLossError for messages that are gone, unless failOnDataLoss is false.
    """
    from pyspark_nsq.log.client import LogClient

    if partition.start == partition.end:
        return
    client = LogClient(options)
    coming = client.read(partition.address, partition.start, options.fetch_bytes)
    at, count = partition.start, 0
    while at < partition.end:
        part = coming.result()
        if options.fail_on_data_loss:
            check(partition, at, part)
        if part.next <= at:  # the log ends before the partition does: a power loss took what had not reached the disk
            if options.fail_on_data_loss:
                raise DataLossError(f"{partition.address}: positions {at} to {partition.end} are gone")
            break
        at = part.next
        if at < partition.end:
            coming = client.read(partition.address, at, options.fetch_bytes)
        for batch in batches(options, partition, part):
            count += batch.num_rows
            yield batch
    tell(
        "replayed",
        options.show_progress,
        topic=options.topic,
        nsqd=partition.address,
        start=partition.start,
        end=partition.end,
        rows=count,
        requests=client.requests,
        retried=client.retried,
        bytes=client.body_bytes,
    )


def check(partition: LogPartition, at: int, part: Part) -> None:
    """Raises DataLossError when messages from `at` on are not there that were."""
    if at and at < part.earliest:
        raise DataLossError(
            f"{partition.address}: position {at} is no longer kept, the oldest is {part.earliest}; keep messages "
            'longer (retention), or set the option "failOnDataLoss" to "false" to go on without them'
        )
    for section in part.sections:
        if section.frames is None and section.first < partition.end:
            raise DataLossError(
                f"{partition.address}: {section.messages} message(s) from position {section.first} on are damaged; "
                'set the option "failOnDataLoss" to "false" to go on without them'
            )


def batches(options: LogOptions, partition: LogPartition, part: Part) -> Iterator[pa.RecordBatch]:
    """What of `part` belongs to the partition, a batch for each answer."""
    import pyarrow as pa

    from pyspark_nsq.log.sections import cut

    found = [
        record_batch(options.topic, partition.address, cut(section, partition.start, partition.end))
        for section in part.sections
        if section.frames is not None and section.first < partition.end
    ]
    if found:
        yield from pa.Table.from_batches(found).combine_chunks().to_batches()


def record_batch(topic: str, address: str, rows: Cut) -> pa.RecordBatch:
    """Rows in Arrow's form, as LOG_SCHEMA says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from pyspark_nsq.log.sections import int64s

    count = len(rows.bodies)
    microseconds = pa.timestamp("us", "UTC")
    due = pa.scalar(rows.due_ms * 1000 if rows.due_ms else None, pa.int64()).cast(microseconds)
    return pa.record_batch(
        {
            "value": rows.bodies,
            "topic": pa.repeat(topic, count),
            "id": rows.ids.cast(pa.string()),
            "timestamp": pc.divide(rows.timestamps_ns, 1000).cast(microseconds),
            "nsqd": pa.repeat(address.partition("://")[2], count),
            "position": int64s(array("q", range(rows.first, rows.first + count))),
            "due": pa.repeat(due, count),
        }
    )
