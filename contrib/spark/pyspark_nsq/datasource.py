"""The data source of ``format("nsq")``, which Spark calls."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_nsq.channel.batch import ChannelBatchReader
from pyspark_nsq.channel.shaped import ShapedBatchReader, ShapedStreamReader
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.errors import NotSupportedError
from pyspark_nsq.log.batch import log_batch_reader
from pyspark_nsq.log.stream import LogStreamReader
from pyspark_nsq.options.channel import SCHEMA, ChannelOptions
from pyspark_nsq.options.log import LOG_SCHEMA, LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.options.values import BINARY
from pyspark_nsq.sink.rows import Columns
from pyspark_nsq.sink.writer import NsqBatchWriter, NsqStreamWriter


class NsqDataSource(DataSource):
    """Sends each row of a DataFrame as a message: ``df.write.format("nsq").mode("append").save()``, and each row of a
    stream: ``df.writeStream.format("nsq").start()``. Reads a channel, or with ``replay=log``
    a topic's log: ``spark.read``, ``spark.readStream``.

    The options are those of `pyspark_nsq.options.sink`, the columns those of `pyspark_nsq.sink.rows`. Everything
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

    def _checked(self, schema: StructType) -> tuple[SinkOptions, Columns]:
        options = SinkOptions.parse(dict(self.options))
        return options, Columns.find(schema, options)

    def schema(self) -> StructType:
        """Check the options for reading, too: Spark does not show an error of `streamReader`.

        Raises OptionError, and NotSupportedError for CREATE TABLE.
        """
        if "provider" in self.options:
            raise NotSupportedError(
                "CREATE TABLE is not possible: Spark does not hand the options of a table to a data source in Python; "
                "use CREATE TEMPORARY VIEW ... USING nsq OPTIONS (...)"
            )
        options = self._read_options()
        schema = options.shaped(LOG_SCHEMA if isinstance(options, LogOptions) else SCHEMA)
        if options.value_format != BINARY:
            from pyspark_nsq.values.decoder import decoder

            decoder(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        options = self._read_options()
        if isinstance(options, LogOptions):
            return log_batch_reader(options)
        return ShapedBatchReader(options) if options.is_shaped else ChannelBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises OptionError."""
        options = self._read_options()
        if isinstance(options, LogOptions):
            return LogStreamReader(options)
        return ShapedStreamReader(options) if options.is_shaped else ChannelStreamReader(options)

    def _read_options(self) -> LogOptions | ChannelOptions:
        given = dict(self.options)
        return LogOptions.parse(given) if "replay" in given else ChannelOptions.parse(given)
