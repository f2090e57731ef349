"""
A batch from a channel: what can be had now, up to a number of messages.

`partitions` consumes, finishes, and puts the rows into the partitions, so all actions on one DataFrame see the same
rows. They are nowhere else then: a job that fails afterwards loses them, unless ackMode is "peek", which gives them
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_nsq.channel.rows import MOST_INLINE_BYTES, InlinePartition, cuts, inline
from pyspark_nsq.channel.spool import Row
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.progress import tell

if TYPE_CHECKING:
    import pyarrow as pa


class ChannelBatchReader(DataSourceReader):
    """Of the channel that `options` name."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Consumes. Raises ReadError."""
        from pyspark_nsq.channel.sample import take

        rows = take(self._options)
        packed = list(_packed(self._options, rows)) or [inline(self._options, [])]
        tell(
            "sampled",
            self._options.show_progress,
            topic=self._options.topic,
            channel=self._options.channel,
            rows=len(rows),
            bytes=sum(len(row.body) for row in rows),
            tasks=len(packed),
        )
        return list[InputPartition](packed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, InlinePartition)
        return partition.batches()


def _packed(options: ChannelOptions, rows: list[Row]) -> Iterator[InlinePartition]:
    for low, high in cuts(0, len(rows), options.partitions):
        start, size = low, 0
        for at in range(low, high):
            size += len(rows[at].body)
            if size > MOST_INLINE_BYTES and at > start:
                yield inline(options, rows[start:at])
                start, size = at, len(rows[at].body)
        yield inline(options, rows[start:high])
