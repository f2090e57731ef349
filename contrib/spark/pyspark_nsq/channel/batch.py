"""
A batch from a channel: the messages that it has now, up to a number of them.

`partitions` consumes and finishes the messages, and puts the rows into the partitions, so all actions on one DataFrame
see the same rows. The partitions have the only copy: a job that fails afterwards loses the rows. With ackMode "peek"
the messages are requeued instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_nsq.channel.rows import MOST_INLINE_BYTES, InlinePartition, cuts
from pyspark_nsq.channel.span import Span
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.progress import tell

if TYPE_CHECKING:
    import pyarrow as pa


class ChannelBatchReader(DataSourceReader):
    """Reads a batch from the channel that `options` name."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Consume the messages, and return them as partitions. Raises ReadError."""
        from pyspark_nsq.channel.sample import take

        spans = take(self._options)
        names = self._options.topic, self._options.channel
        packed = [InlinePartition(*names, some) for some in _packed(spans, self._options.partitions)]
        tell(
            "sampled",
            self._options.show_progress,
            topic=self._options.topic,
            channel=self._options.channel,
            rows=sum(span.count for span in spans),
            bytes=sum(span.body_bytes for span in spans),
            tasks=max(1, len(packed)),
        )
        # Spark needs at least one task, and so at least one partition.
        return list[InputPartition](packed or [InlinePartition(*names, [])])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, InlinePartition)
        return partition.batches()


def _packed(spans: list[Span], partitions: int) -> Iterator[list[Span]]:
    """Divide the rows into about equal parts of at most MOST_INLINE_BYTES, or of one row."""
    total = sum(span.count for span in spans)
    for low, high in cuts(0, total, partitions):
        some: list[Span] = []
        left = MOST_INLINE_BYTES
        for span in _between(spans, low, high):
            while span.count:
                count = span.fit(left) or (0 if some else 1)
                if count:
                    some.append(span.part(0, count))
                    left -= some[-1].body_bytes
                    span = span.part(count, span.count)
                if span.count:
                    yield some
                    some, left = [], MOST_INLINE_BYTES
        if some:
            yield some


def _between(spans: list[Span], low: int, high: int) -> Iterator[Span]:
    """Return the rows from number `low` to before `high`."""
    at = 0
    for span in spans:
        start, stop = max(low - at, 0), min(high - at, span.count)
        if start < stop:
            yield span.part(start, stop)
        at += span.count
