"""The topics and tables that a pipeline writes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_nsq.datasource import NsqDataSource
from pyspark_nsq.errors import ConfigError, NsqSparkError
from pyspark_nsq.jobs.etl.config import Config
from pyspark_nsq.jobs.etl.kinds import AVAILABLE_NOW
from pyspark_nsq.jobs.etl.sections import APPEND, COMPLETE, UPDATE, DeadLetters, Target
from pyspark_nsq.jobs.etl.source import check_options, connection
from pyspark_nsq.jobs.etl.statements import message
from pyspark_nsq.jobs.etl.tables import FileTable
from pyspark_nsq.options.sink import MAX_MESSAGE_BYTES

#: Formats that keep bytes as they are; in all others the body of a dead letter is text.
_BINARY_FORMATS = ("parquet", "delta")
_NO_WATERMARK = ' Add [watermark] and group by a window of its column, or set output_mode = "update" for a topic.'
#: As JSON, six bytes for one at most: within the size of a message.
_SHORTENED_BYTES = 64 * 1024


@dataclass(frozen=True)
class Destination:
    """Rows of a stream with their target. Make it with `of_sink` or `of_dead_letters`."""

    name: str
    rows: DataFrame
    #: The folder of a table.
    path: str | None
    format: str
    options: dict[str, str]
    output_mode: str
    partition_by: tuple[str, ...]

    def check(self, spark: SparkSession, place: str) -> None:
        """Check options, columns, and whether Spark can run this as a stream. Raises ConfigError after `place`."""
        try:
            if self.format == "nsq":
                NsqDataSource(self.options).writer(self.rows.schema, overwrite=False)
        except NsqSparkError as error:
            raise ConfigError(f"{place}: {error}") from error
        missing = [name for name in self.partition_by if name not in self.rows.columns]
        if missing:
            known = ", ".join(self.rows.columns)
            raise ConfigError(f'{place}: "partition_by" names "{missing[0]}"; columns of the query are: {known}')
        if self.format == "delta":
            _check_delta(spark, place)
        if not self.rows.isStreaming:
            raise ConfigError(f"{place}: [query] does not read the messages, and would have no end of nothing new")
        try:
            _check_streaming(spark, self.rows, self.output_mode)
        except PySparkException as error:
            remedy = _NO_WATERMARK if "without watermark" in str(error) else ""
            raise ConfigError(f"{place}: {message(error)}{remedy}") from error

    def start(self, checkpoint: str, trigger: str) -> StreamingQuery:
        """Start the stream."""
        writer = self.rows.writeStream.queryName(self.name).option("checkpointLocation", checkpoint)
        writer = writer.outputMode(self.output_mode).trigger(**_trigger(trigger))
        if self.format == "nsq" and self.output_mode == UPDATE:
            # A data source in Python cannot declare that it supports updates.
            return writer.foreachBatch(_publisher(self.options)).start()
        if self.format in ("nsq", "delta"):
            return writer.format(self.format).options(**self.options).partitionBy(*self.partition_by).start(self.path)
        table = FileTable(str(self.path), checkpoint, self.format, self.options)
        return writer.foreachBatch(lambda batch, number: table.add(batch, number, self.partition_by)).start()


def of_sink(config: Config, rows: DataFrame) -> Destination:
    """Return the rows of the query with the target of [sink]."""
    sink = config.sink
    if sink.topic is not None and sink.value != "column":
        rows = rows.select(f.to_json(f.struct("*")).alias("value"))
    return _destination(config, "rows", sink, rows, sink.output_mode, sink.options)


def of_dead_letters(config: Config, dead: DeadLetters, rows: DataFrame) -> Destination:
    """Return the dead letters with the target of [dead_letters]."""
    if dead.topic is not None:
        rows = _as_messages(rows)
    elif (dead.format or "parquet") not in _BINARY_FORMATS:
        rows = rows.withColumn("value", _text())
    return _destination(config, "dead_letters", dead, rows, APPEND, {})


def _destination(
    config: Config, name: str, target: Target, rows: DataFrame, output_mode: str, options: dict[str, str]
) -> Destination:
    if target.topic is not None:
        own = connection(config, "nsqdHttpAddresses", target.nsqd_http_addresses) | {"topic": target.topic}
        check_options(config, "sink", own, options)
        return Destination(name, rows, None, "nsq", own | options, output_mode, ())
    path = config.path(str(target.path))
    return Destination(name, rows, path, target.format or "parquet", options, output_mode, target.partition_by)


def _as_messages(rows: DataFrame) -> DataFrame:
    """Return a JSON object for each dead letter; one too big for a message has the beginning of its value."""
    whole = f.to_json(f.struct("reason", _text().alias("value"), *_places(rows)))
    begin = f.make_valid_utf8(f.substring("value", 1, _SHORTENED_BYTES).cast("string"))
    part = f.to_json(f.struct("reason", begin.alias("value"), f.lit(True).alias("is_shortened"), *_places(rows)))
    return rows.select(f.when(f.octet_length(whole) <= MAX_MESSAGE_BYTES, whole).otherwise(part).alias("value"))


def _places(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in ("reason", "value")]


def _text() -> Any:
    return f.make_valid_utf8(f.col("value").cast("string"))


def _trigger(text: str) -> dict[str, Any]:
    return {"availableNow": True} if text == AVAILABLE_NOW else {"processingTime": text}


def _publisher(options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    def publish(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("nsq").mode("append").options(**options).save()

    return publish


def _check_streaming(spark: SparkSession, rows: DataFrame, output_mode: str) -> None:
    """Run Spark's check at the start of a stream: it refuses queries that streams cannot compute in this mode."""
    java = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    modes = java.streaming.OutputMode
    mode = {APPEND: modes.Append, COMPLETE: modes.Complete, UPDATE: modes.Update}[output_mode]()
    plan = rows._jdf.queryExecution().analyzed()
    java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)


def _check_delta(spark: SparkSession, place: str) -> None:
    java = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    try:
        java.execution.datasources.DataSource.lookupDataSource("delta", spark._jsparkSession.sessionState().conf())
    except Py4JJavaError:
        problem = 'format = "delta" needs the jars of Delta Lake: add --conf spark.jars=..., or take "parquet"'
        raise ConfigError(f"{place}: {problem}") from None
