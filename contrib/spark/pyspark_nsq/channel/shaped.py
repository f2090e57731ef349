"""Readers of a channel with a selection of columns, or with decoded values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_nsq.channel.batch import ChannelBatchReader
from pyspark_nsq.channel.stream import ChannelStreamReader

if TYPE_CHECKING:
    import pyarrow as pa


class ShapedBatchReader(ChannelBatchReader):
    """Reads a batch. `read` raises ValueFormatError for a malformed value."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_nsq.values.decoder import shaped

        return shaped(self._options, super().read(partition))


class ShapedStreamReader(ChannelStreamReader):
    """Reads a stream. `read` raises ValueFormatError for a malformed value."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_nsq.values.decoder import shaped

        return shaped(self._options, super().read(partition))
