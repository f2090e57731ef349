"""A pipeline: the query of the good messages and the query of the dead letters, from their analysis to their end.

Each query reads all messages, has its own checkpoint, and writes its own rows. So both are equally durable: after a
crash each continues from its own checkpoint. They start at the same message, because the first message does not depend
on the time of the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import click
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType, TimestampType

from pyspark_nsq import progress
from pyspark_nsq.errors import ConfigError, PipelineError
from pyspark_nsq.jobs.etl import parsing, source, statements
from pyspark_nsq.jobs.etl.config import Config
from pyspark_nsq.jobs.etl.failures import reason_of
from pyspark_nsq.jobs.etl.targets import Destination, of_dead_letters, of_sink
from pyspark_nsq.slow_start import Starts

ROWS, DEAD_LETTERS = "rows", "dead_letters"
_POLL_SECONDS = 1


@dataclass
class Totals:
    """The counts of a query since it was started. `late`: as Spark counts them, after a partial aggregation."""

    messages: int = 0
    dead_letters: int = 0
    late: int = 0
    batches: int = 0


@dataclass
class Pipeline:
    """The queries of a configuration. Make it with `build`."""

    config: Config
    schema: StructType
    destinations: list[Destination]
    totals: dict[str, Totals] = field(default_factory=dict)
    _is_stopped: bool = False

    def stop(self) -> None:
        """End `run`. The next start repeats the micro-batches that are not committed."""
        self._is_stopped = True

    def columns(self) -> str:
        """Return the columns of the query with their types."""
        return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in self.schema.fields)

    def run(self) -> None:
        """Run until all present messages are written, or without end. Raises PipelineError when a query fails."""
        checkpoint = self.config.path(self.config.run.checkpoint)
        running: list[_Running] = []
        try:
            for target in self.destinations:
                totals = self.totals[target.name] = Totals()
                start = partial(target.start, f"{checkpoint}/{target.name}", self.config.run.trigger)
                running.append(_Running(target.name, start, totals))
            while not self._is_stopped and not all([each.is_done() for each in running]):
                pass
        except PySparkException as error:
            raise PipelineError(reason_of(error)) from error
        finally:
            for each in running:
                each.query.stop()


@dataclass
class _Running:
    """A query that `start` has started, and starts again after a slow start."""

    name: str
    start: Callable[[], StreamingQuery]
    totals: Totals
    last_batch: int = -1
    query: StreamingQuery = field(init=False)
    starts: Starts = field(init=False, default_factory=lambda: Starts(partial(click.echo, err=True)))

    def __post_init__(self) -> None:
        self.query = self.start()

    def is_done(self) -> bool:
        """Wait a moment, report progress, and return whether the query has ended. Raises StreamingQueryException."""
        try:
            done = bool(self.query.awaitTermination(_POLL_SECONDS))
        except StreamingQueryException as error:
            if not self.starts.again(error):
                raise
            self.query = self.start()
            return False
        for batch in self.query.recentProgress:
            if batch.batchId > self.last_batch:
                self.last_batch = batch.batchId
                self._report(batch)
        return done

    def _report(self, batch: StreamingQueryProgress) -> None:
        counts = batch.observedMetrics.get(parsing.OBSERVATION)
        messages = int(counts[parsing.MESSAGES]) if counts is not None else 0
        dead = int(counts[parsing.DEAD_LETTERS]) if counts is not None else 0
        late = sum(state.numRowsDroppedByWatermark for state in batch.stateOperators)
        self.totals.batches += 1
        self.totals.messages += messages
        self.totals.dead_letters += dead
        self.totals.late += late
        if messages or late:
            progress.tell(
                "etl",
                True,
                query=self.name,
                batch=batch.batchId,
                messages=messages,
                dead_letters=dead,
                late=late,
                watermark=batch.eventTime.get("watermark"),
            )


def build(spark: SparkSession, config: Config) -> Pipeline:
    """Analyse schemas, tables and statements, and read no message. Raises ConfigError."""
    # In Spark's default type of timestamps in Parquet other readers see no time zone.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    schema = None
    if config.source.schema is not None:
        schema = statements.ddl(config, "source", 0, config.source.schema)
        _check_names(config, schema)
    dead = config.dead_letters
    rows = _parsed(spark, config, ROWS, config.source.channel, schema, is_failing=dead is None)
    messages = parsing.good(rows, parsing.value_schema(config.source.format, schema))
    _with_watermark(config, messages).createOrReplaceTempView(config.source.view)
    statements.register_tables(spark, config)
    result = statements.rows_of_query(spark, config)
    destinations = [of_sink(config, result)]
    destinations[0].check(spark, config.where("sink"))
    if dead is not None:
        channel = dead.channel or (f"{config.source.channel}-dead" if config.source.channel else None)
        letters = parsing.dead_letters(_parsed(spark, config, DEAD_LETTERS, channel, schema, is_failing=False))
        destinations.append(of_dead_letters(config, dead, letters))
        destinations[1].check(spark, config.where("dead_letters"))
    return Pipeline(config, result.schema, destinations)


def _parsed(
    spark: SparkSession, config: Config, query: str, channel: str | None, schema: StructType | None, *, is_failing: bool
) -> DataFrame:
    messages = source.messages(spark, config, query, channel)
    return parsing.parsed(messages, config.source.format, schema, is_failing=is_failing)


def _check_names(config: Config, schema: StructType) -> None:
    taken = {f"_{name}" for name in parsing.NSQ_COLUMNS}
    seen: set[str] = set()
    for name in (each.name.lower() for each in schema.fields):
        if name in taken or name in seen:
            problem = "is a column of every message" if name in taken else "is there twice"
            raise ConfigError(f'{config.where("source", 0, "schema")}: the name "{name}" {problem}; choose another')
        seen.add(name)


def _with_watermark(config: Config, messages: DataFrame) -> DataFrame:
    watermark = config.watermark
    if watermark is None:
        return messages
    kinds = {each.name: each.dataType for each in messages.schema.fields}
    times = [name for name, kind in kinds.items() if isinstance(kind, TimestampType)]
    if watermark.column not in times:
        found = kinds.get(watermark.column)
        problem = "is not a column" if found is None else f"is {found.simpleString()}"
        raise ConfigError(
            f'{config.where("watermark", 0, "column")}: "{watermark.column}" {problem}; '
            f"columns of type timestamp are: {', '.join(times)}"
        )
    return messages.withWatermark(watermark.column, watermark.delay)
