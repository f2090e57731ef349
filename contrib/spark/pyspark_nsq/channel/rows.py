"""The rows that a read of a channel gives to Spark, and the partitions in which tasks get them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_nsq.channel.span import Span, joined
from pyspark_nsq.channel.spool import read_spans
from pyspark_nsq.errors import SpoolError
from pyspark_nsq.frames import ATTEMPTS_AT, BODY_AT, FAR_BEHIND, ID_AT, TIMESTAMP_AT, big_endian, column_of
from pyspark_nsq.machine import this_machine

if TYPE_CHECKING:
    import pyarrow as pa

#: Spark sends a partition with its rows as a whole, through the memory of its Java.
MOST_INLINE_BYTES = 32 << 20
#: Most bytes of the frames of one Arrow batch.
_BATCH_BYTES = 4 << 20
_INLINE = 'set the option "spoolMode" to "inline"'


class InlinePartition(InputPartition):
    """Messages of a channel in the frames of nsqd. The task makes the columns."""

    def __init__(self, topic: str, channel: str, spans: list[Span]) -> None:
        self.topic, self.channel, self.spans = topic, channel, spans

    def batches(self) -> Iterator[pa.RecordBatch]:
        return _batches(self.topic, self.channel, self.spans)


class SharedPartition(InputPartition):
    """
    The rows after number `after` up to number `end`, in the spool at `path`, whose uuid is `spool`.

    Only for tasks on the machine that writes the spool. On another machine the folder is another one, or is on a
    network file system that may not show the newest rows.
    """

    def __init__(
        self, topic: str, channel: str, path: str, spool: str, after: int, end: int, *, skips_damage: bool
    ) -> None:
        self.topic, self.channel, self.path, self.after, self.end = topic, channel, path, after, end
        self.spool, self.skips_damage = spool, skips_damage
        self.machine = this_machine()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows. Raises SpoolError, also when rows are missing."""
        if self.machine != this_machine():
            raise SpoolError(f"the spool {self.path} is on the driver's machine, and this task is not; {_INLINE}")
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            spans = read_spans(self.path, self.spool, self.after, self.end, skips_damage=self.skips_damage)
            yield from _batches(self.topic, self.channel, spans)
        except SpoolError as error:
            reasons = "this task cannot see the driver's folder, or reads a micro-batch after its end"
            raise SpoolError(f"{error}; if {reasons}, {_INLINE}") from error


def _batches(topic: str, channel: str, spans: Iterable[Span]) -> Iterator[pa.RecordBatch]:
    for span in joined(spans, _BATCH_BYTES):
        yield record_batch(topic, channel, span)


def record_batch(topic: str, channel: str, span: Span) -> pa.RecordBatch:
    """Return the messages as an Arrow batch with the columns of SCHEMA."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = span.count
    frames = column_of(span.frames, span.starts, 0, count)
    timestamps_ns = big_endian(pc.binary_slice(frames, TIMESTAMP_AT, ATTEMPTS_AT))
    attempts = big_endian(pc.binary_slice(frames, ATTEMPTS_AT, ID_AT), "H")
    return pa.record_batch(
        {
            "value": pc.binary_slice(frames, BODY_AT, FAR_BEHIND),
            "topic": pa.repeat(topic, count),
            "channel": pa.repeat(channel, count),
            "id": pc.binary_slice(frames, ID_AT, BODY_AT).cast(pa.string()),
            "timestamp": pc.divide(timestamps_ns, 1000).cast(pa.timestamp("us", "UTC")),
            "attempts": attempts.cast(pa.int32()),
            "nsqd": pa.repeat(span.nsqd, count),
        }
    )


def cuts(after: int, end: int, count: int) -> list[tuple[int, int]]:
    """Divide a range into `count` ranges (first number excluded, last one included) of about equal size."""
    total = end - after
    count = max(1, min(count, total))
    edges = [after + total * number // count for number in range(count + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]
