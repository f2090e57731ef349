"""The table function ``nsq_log`` for SQL: rows of a topic's log without a view.

    from pyspark_nsq.sql import register
    register(spark)
    spark.sql("SELECT count(*) FROM nsq_log(nsqdHttpAddresses => '127.0.0.1:4151', topic => 'clicks')")

Its arguments are the options of ``replay=log``, by name. One task reads all, so a view
(``CREATE TEMPORARY VIEW ... USING nsq OPTIONS (...)``) is faster for a long log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.functions import arrow_udtf

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.log import LOG_SCHEMA, LogOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import UserDefinedTableFunction

NAME = "nsq_log"


class NsqLog:
    """Reads the logs that its arguments select, in one task."""

    def eval(self, **arguments: Any) -> Iterator[pa.Table]:
        """Return the rows. Raises the errors of a batch of a log."""
        import pyarrow as pa

        from pyspark_nsq.log.batch import LogBatchReader

        given = {name: _text(name, values) for name, values in arguments.items()}
        options = LogOptions.parse(given | {"replay": "log"})
        if options.is_shaped or options.include_headers:
            raise OptionError(
                f'{NAME} has fixed columns; for "columns", "valueFormat" and "includeHeaders" create a view USING nsq'
            )
        reader = LogBatchReader(options)
        for partition in reader.partitions():
            for batch in reader.read(partition):
                yield pa.Table.from_batches([batch])


def _text(name: str, values: pa.Array) -> str:
    """Return the text of an argument, which is a column with one row."""
    value = values[0].as_py()
    if value is None:
        raise OptionError(f'{NAME}: the argument "{name}" is null')
    return str(value).lower() if isinstance(value, bool) else str(value)


def register(spark: SparkSession) -> None:
    """Register ``nsq_log`` in a session."""
    function = cast("UserDefinedTableFunction", arrow_udtf(NsqLog, returnType=LOG_SCHEMA))
    spark.udtf.register(NAME, function)
