"""The data source of ``format("nsq")``, which Spark calls."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_nsq.channel.batch import ChannelBatchReader
from pyspark_nsq.channel.shaped import ShapedBatchReader, ShapedStreamReader
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.errors import NotSupportedError, NsqSparkError, SchemaError
from pyspark_nsq.failed_stream import FailedStreamReader
from pyspark_nsq.log.batch import log_batch_reader
from pyspark_nsq.log.stream import LogStreamReader
from pyspark_nsq.options.channel import SCHEMA, ChannelOptions
from pyspark_nsq.options.kinds import BATCH, STREAM, check_mode
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.options.values import BINARY
from pyspark_nsq.sink.rows import Columns
from pyspark_nsq.sink.writer import NsqBatchWriter, NsqStreamWriter


class NsqDataSource(DataSource):
    """The data source: publishes each row of a DataFrame or a stream as a message, and reads channels and logs.

    A batch is written with ``df.write.format("nsq").mode("append").save()``, and a stream with
    ``df.writeStream.format("nsq").start()``. ``spark.read`` and ``spark.readStream`` read a channel, or with
    ``replay=log`` the logs of topics.

    The options are those of the modules in `pyspark_nsq.options`, the columns for writing those of
    `pyspark_nsq.sink.rows`. Options and columns are checked before a job starts.
    """

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        """Return the sink. Raises OptionError, SchemaError, or NotSupportedError for mode("overwrite")."""
        if overwrite:
            raise NotSupportedError('a topic cannot be overwritten; use mode("append")')
        return NsqBatchWriter(*self._checked(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> NsqStreamWriter:
        """Return the sink. `overwrite`: output mode "complete", which publishes all rows again. Raises as `writer`."""
        return NsqStreamWriter(*self._checked(schema))

    def _checked(self, schema: StructType) -> tuple[SinkOptions, Columns]:
        options = SinkOptions.parse(dict(self.options))
        return options, Columns.find(schema, options)

    def schema(self) -> StructType:
        """Return the columns, after checking the options: Spark does not show an error of `streamReader`.

        Raises OptionError, and NotSupportedError for CREATE TABLE.
        """
        if "provider" in self.options:
            raise NotSupportedError(
                "CREATE TABLE is not possible: Spark does not hand the options of a table to a data source in Python; "
                "use CREATE TEMPORARY VIEW ... USING nsq OPTIONS (...)"
            )
        options = self._read_options()
        if options.value_format != BINARY:
            from pyspark_nsq.values.decoder import decoder

            decoder(options)
        return options.shaped(_columns_of(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises OptionError, and SchemaError for a schema of the user with other columns."""
        options = self._read_options_for(schema, BATCH)
        if isinstance(options, LogOptions):
            return log_batch_reader(options)
        return ShapedBatchReader(options) if options.is_shaped else ChannelBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that raises as `reader` does when there is a mistake."""
        try:
            options = self._read_options_for(schema, STREAM)
        except NsqSparkError as error:
            return FailedStreamReader(error)
        if isinstance(options, LogOptions):
            return LogStreamReader(options)
        return ShapedStreamReader(options) if options.is_shaped else ChannelStreamReader(options)

    def _read_options_for(self, schema: StructType, mode: str) -> LogOptions | ChannelOptions:
        """Return the options of a batch or a stream, with `columns` those of the schema where the user has given one.

        Raises OptionError, also for an option of the other `mode`.
        """
        options = self._read_options()
        check_mode(type(options), self.options, mode)
        own = options.shaped(_columns_of(options))
        if schema == own:
            return options
        types = {each.name: each.dataType for each in own.fields}
        for each in schema.fields:
            if types.get(each.name) != each.dataType:
                known = ", ".join(f"{one.name} {one.dataType.simpleString().upper()}" for one in own.fields)
                raise SchemaError(
                    f'there is no column "{each.name} {each.dataType.simpleString().upper()}"; there are {known}; '
                    'the option "valueFormat" changes the type of "value"'
                )
        return replace(options, columns=tuple(schema.fieldNames()))

    def _read_options(self) -> LogOptions | ChannelOptions:
        given = dict(self.options)
        return LogOptions.parse(given) if "replay" in given else ChannelOptions.parse(given)


def _columns_of(options: LogOptions | ChannelOptions) -> StructType:
    return options.schema if isinstance(options, LogOptions) else SCHEMA
