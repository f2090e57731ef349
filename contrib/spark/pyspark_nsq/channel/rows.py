"""The rows that a read of a channel gives to Spark, and how they travel to the tasks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_nsq.channel.spool import Row, read_rows
from pyspark_nsq.errors import SpoolError
from pyspark_nsq.machine import this_machine
from pyspark_nsq.options.channel import ChannelOptions

if TYPE_CHECKING:
    import pyarrow as pa

#: A partition with its rows inside travels in one piece.
MOST_INLINE_BYTES = 8 * 1024 * 1024
_ROWS_AT_ONCE = 10_000


class InlinePartition(InputPartition):
    """Rows as an Arrow stream."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.ipc.open_stream(self.stream) as reader:
            yield from reader


class SharedPartition(InputPartition):
    """
    Where the rows are: above `after` up to and with `end`, in the spool at `path`, whose uuid is `spool`.

    Only for tasks on the machine that writes the spool: SQLite's readers and its writer share memory. On another one,
    a file of that name is another file, or one on a network's disk whose newest rows are not seen.
    """

    def __init__(self, topic: str, channel: str, path: str, spool: str, after: int, end: int) -> None:
        self.topic, self.channel, self.path, self.after, self.end = topic, channel, path, after, end
        self.spool = spool
        self.machine = this_machine()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Raises SpoolError, also when not all rows are there."""
        if self.machine != this_machine():
            raise SpoolError(
                f"the spool {self.path} is on the driver's machine, and this task is not; "
                'set the option "spoolMode" to "inline"'
            )
        rows: list[Row] = []
        for row in read_rows(self.path, self.spool, self.after, self.end):
            rows.append(row)
            if len(rows) == _ROWS_AT_ONCE:
                yield record_batch(self.topic, self.channel, rows)
                rows = []
        if rows:
            yield record_batch(self.topic, self.channel, rows)


def inline(options: ChannelOptions, rows: Iterable[Row]) -> InlinePartition:
    """A partition that carries `rows`."""
    import pyarrow as pa

    batch = record_batch(options.topic, options.channel, list(rows))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return InlinePartition(out.getvalue())


def record_batch(topic: str, channel: str, rows: list[Row]) -> pa.RecordBatch:
    """Rows in Arrow's form, as SCHEMA says."""
    import pyarrow as pa

    count = len(rows)
    _, nsqds, ids, timestamps, attempts, bodies = zip(*rows, strict=True) if rows else ((),) * 6
    microseconds = pa.array(timestamps, pa.int64())
    return pa.record_batch(
        {
            "value": pa.array(bodies, pa.binary()),
            "topic": pa.repeat(topic, count),
            "channel": pa.repeat(channel, count),
            "id": pa.array(ids, pa.binary()).cast(pa.string()),
            "timestamp": pa.compute.divide(microseconds, 1000).cast(pa.timestamp("us", "UTC")),
            "attempts": pa.array(attempts, pa.int32()),
            "nsqd": pa.array(nsqds, pa.string()),
        }
    )


def cuts(after: int, end: int, count: int) -> list[tuple[int, int]]:
    """`count` ranges (above, up to and with) that make up the range, of about the same size; none is empty."""
    total = end - after
    count = max(1, min(count, total))
    edges = [after + total * number // count for number in range(count + 1)]
    return [(low, high) for low, high in zip(edges, edges[1:], strict=False) if high > low]
