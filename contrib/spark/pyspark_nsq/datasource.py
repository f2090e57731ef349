"""What Spark asks for by ``format("nsq")``."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_nsq.channel_batch import ChannelBatchReader
from pyspark_nsq.channel_rows import SCHEMA
from pyspark_nsq.channel_stream import ChannelStreamReader
from pyspark_nsq.errors import NotSupportedError
from pyspark_nsq.options import Options
from pyspark_nsq.read_options import ReadOptions
from pyspark_nsq.rows import Columns
from pyspark_nsq.writer import NsqBatchWriter, NsqStreamWriter


class NsqDataSource(DataSource):
    """Sends each row of a DataFrame as a message: ``df.write.format("nsq").mode("append").save()``, and each row of a
    stream: ``df.writeStream.format("nsq").start()``. Reads a channel: ``spark.read`` and ``spark.readStream``.

    The options are those of `pyspark_nsq.options`, the columns those of `pyspark_nsq.rows`. Everything
    that can be known before the job starts is checked before it starts.
    """

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        """Raises OptionError, SchemaError, or NotSupportedError for mode("overwrite")."""
        if overwrite:
            raise NotSupportedError('a topic cannot be overwritten; use mode("append")')
        return NsqBatchWriter(*self._checked(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> NsqStreamWriter:
        """`overwrite`: Spark's output mode "complete", which publishes all rows anew each time. Raises as `writer`."""
        return NsqStreamWriter(*self._checked(schema))

    def _checked(self, schema: StructType) -> tuple[Options, Columns]:
        options = Options.parse(dict(self.options))
        return options, Columns.find(schema, options)

    def schema(self) -> StructType:
        """Checks the options for reading, too: what `streamReader` raises reaches nobody in readable form."""
        ReadOptions.parse(dict(self.options))
        return SCHEMA

    def reader(self, schema: StructType) -> ChannelBatchReader:
        """Raises OptionError."""
        return ChannelBatchReader(ReadOptions.parse(dict(self.options)))

    def streamReader(self, schema: StructType) -> ChannelStreamReader:
        """Raises OptionError."""
        return ChannelStreamReader(ReadOptions.parse(dict(self.options)))
