"""What Spark asks for by ``format("nsq")``."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pyspark_nsq.errors import NotSupportedError
from pyspark_nsq.options import Options
from pyspark_nsq.rows import Columns
from pyspark_nsq.writer import NsqBatchWriter, NsqStreamWriter


class NsqDataSource(DataSource):
    """Sends each row of a DataFrame as a message: ``df.write.format("nsq").mode("append").save()``, and each row of a
    stream: ``df.writeStream.format("nsq").start()``.

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
        _refuse("reading")

    def reader(self, schema: StructType) -> DataSourceReader:
        _refuse("reading")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _refuse("reading as a stream")

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        _refuse("reading as a stream")


def _refuse(what: str) -> NoReturn:
    raise NotSupportedError(f'format("nsq") does not support {what}; it writes: df.write.format("nsq")')
