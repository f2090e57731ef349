"""The messages that a job reads: those of an archive, or those of the logs of topics; and the options that choose them.

| column    | type      |                                                                        |
|-----------|-----------|------------------------------------------------------------------------|
| value     | binary    | the message                                                            |
| text      | string    | the message as UTF-8                                                   |
| json      | variant   | the message parsed, null when it is not JSON: ``json:user.id::int > 7`` |
| topic     | string    |                                                                        |
| id        | string    | 16 hexadecimal digits                                                  |
| timestamp | timestamp | when it was published                                                  |
| nsqd      | string    | host:port of the nsqd whose log has it                                 |
| position  | long      | its position in that log                                               |
| due       | timestamp | for a deferred message, the time from which it may be delivered        |
| headers   | map       | the headers of the message, null for none: ``headers['tenant'] = 'x'`` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyspark_nsq.errors import OptionError, ReadError
from pyspark_nsq.jobs.connection import Connection
from pyspark_nsq.jobs.failures import first_line, quiet_analysis, unknown
from pyspark_nsq.jobs.moments import MOMENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

F = TypeVar("F", bound=Callable[..., Any])

STORED = ("value", "topic", "id", "timestamp", "nsqd", "position", "due", "headers")
COLUMNS = ("value", "text", "json", *STORED[1:])
#: The options of a connection that name the nsqds.
_PLACES = ("nsqdHttpAddresses", "lookupdHttpAddresses")


@dataclass(frozen=True)
class Section:
    """The positions from `start` to before `end` on one nsqd. Its messages were published from `since` to `until`."""

    topic: str
    nsqd: str
    start: int
    end: int
    since_ms: int
    until_ms: int


@dataclass(frozen=True)
class Messages:
    """Messages of `topics`, published from `start_ms` to before `end_ms`, for which the SQL in `where` is true.

    They are those of an archive when `archive` is set, or else those of the logs of the connection's nsqds.
    """

    connection: Connection
    archive: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    where: str = ""
    allow_data_loss: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if bool(self.archive) == bool(self.connection.options):
            raise click.UsageError("give either --archive, or --nsqd-http-address or --lookupd-http-address")
        if self.archive and self.allow_data_loss:
            raise click.UsageError("--allow-data-loss is of no use with --archive; leave it out")
        if self.start_ms is not None and self.end_ms is not None and self.start_ms >= self.end_ms:
            raise click.UsageError("--from is not before --to; --to is exclusive")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise click.UsageError(f'--topic-pattern "{self.pattern}" is no regular expression: {error}') from None

    @property
    def place(self) -> str:
        """The archive or the addresses of the messages, for output."""
        named = [self.connection.options[name] for name in _PLACES if name in self.connection.options]
        return self.archive or ", ".join(named)

    def topics_found(self, spark: SparkSession) -> list[str]:
        """Return the names of the topics. Raises OptionError for one that does not exist, ReadError."""
        known = self._known_topics(spark)
        for topic in self.topics:
            if topic not in known:
                raise unknown("topic", topic, known, self.place)
        if not self.pattern:
            return list(dict.fromkeys(self.topics))
        matching = sorted(topic for topic in known if re.fullmatch(self.pattern, topic))
        if not matching:
            raise OptionError(
                f'{self.place} has no topic that "{self.pattern}" matches; there are: {", ".join(sorted(known))}'
            )
        return matching

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the messages. Raises OptionError for a missing topic or archive, and for wrong SQL; ReadError."""
        from pyspark.sql import functions as f

        topics = self.topics_found(spark)
        if self.archive:
            rows = self._archived(spark, self.start_ms, self.end_ms).where(f.col("topic").isin(topics))
        else:
            moments = {"startingTimestamp": self.start_ms, "endingTimestamp": self.end_ms}
            options = {name: str(moment) for name, moment in moments.items() if moment is not None}
            rows = self._log(spark, self.connection.options | options | {"subscribe": ",".join(topics)})
        return self._chosen(rows)

    def section(self, spark: SparkSession, section: Section) -> DataFrame:
        """Return the messages with the positions of a section. Raises as `frame`."""
        from pyspark.sql import functions as f

        if not self.archive:
            return self._chosen(self._log(spark, self._options_of(section)))
        rows = self._archived(spark, section.since_ms, section.until_ms)
        return self._chosen(
            rows.where(
                (f.col("topic") == section.topic)
                & (f.col("nsqd") == section.nsqd)
                & (f.col("position") >= section.start)
                & (f.col("position") < section.end)
            )
        )

    def _log(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        return (
            spark.read.format("nsq")
            .option("replay", "log")
            .option("includeHeaders", "true")
            .options(**options)
            .option("numPartitions", str(spark.sparkContext.defaultParallelism))
            .option("failOnDataLoss", str(not self.allow_data_loss).lower())
            .load()
            .select(*STORED)
        )

    def _options_of(self, section: Section) -> dict[str, str]:
        """Return the options of ``format("nsq")`` for a section of a log."""
        from pyspark_nsq.jobs.brokers import Brokers

        address = next((each for each in Brokers(self.connection).addresses() if _host(each) == section.nsqd), None)
        if address is None:
            raise ReadError(f"{self.place} does not know {section.nsqd} any more, which has a part of the messages")
        options = {name: text for name, text in self.connection.options.items() if name not in _PLACES}
        ends = {"startingOffsets": section.start, "endingOffsets": section.end}
        options |= {name: json.dumps({section.topic: {address: position}}) for name, position in ends.items()}
        return options | {"nsqdHttpAddresses": address, "subscribe": section.topic}

    def _archived(self, spark: SparkSession, first_ms: int | None, last_ms: int | None) -> DataFrame:
        """Return the rows of the days of a range of time: files of other days are not opened."""
        from pyspark.sql import functions as f

        rows = self._read_archive(spark)
        if first_ms is not None:
            rows = rows.where(f.col("date") >= f.lit(_day(first_ms)))
        if last_ms is not None:
            rows = rows.where(f.col("date") <= f.lit(_day(last_ms)))
        if "headers" not in rows.columns:
            rows = rows.withColumn("headers", f.lit(None).cast("map<string,string>"))
        return rows.select(*STORED)

    def _known_topics(self, spark: SparkSession) -> set[str]:
        if self.archive:
            return {row.topic for row in self._read_archive(spark).select("topic").distinct().collect()}
        from pyspark_nsq.jobs.brokers import Brokers

        return set(Brokers(self.connection).channels())

    def _read_archive(self, spark: SparkSession) -> DataFrame:
        from pyspark_nsq.archive.files import Files
        from pyspark_nsq.archive.identity import read_identity
        from pyspark_nsq.archive.reader import read_archive

        files = Files(spark, self.archive)
        if read_identity(files) is None:
            raise OptionError(f'--archive "{self.archive}" has no archive; give the --output of nsqtw-spark archive')
        return read_archive(spark, files)

    def _chosen(self, rows: DataFrame) -> DataFrame:
        """Return the rows of the range of time and of the predicate, with the columns of text and JSON."""
        from pyspark.sql import functions as f

        if self.start_ms is not None:
            rows = rows.where(f.col("timestamp") >= _timestamp(self.start_ms))
        if self.end_ms is not None:
            rows = rows.where(f.col("timestamp") < _timestamp(self.end_ms))
        rows = rows.withColumn("text", f.expr("CAST(value AS STRING)")).withColumn(
            "json", f.expr("try_parse_json(text)")
        )
        return where(rows, self.where) if self.where else rows


def _host(address: str) -> str:
    return address.partition("://")[2]


def _day(unix_ms: int) -> date:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).date()


def _timestamp(unix_ms: int) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_millis(f.lit(unix_ms))


def where(rows: DataFrame, predicate: str) -> DataFrame:
    """Return the rows for which the SQL is true. Raises OptionError with Spark's message for wrong SQL."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        with quiet_analysis():
            return rows.where(predicate)
    except (AnalysisException, ParseException) as error:
        line = first_line(error)
        cast = "A JSON field needs a type: json:user.id::int. " if "VARIANT" in line else ""
        raise OptionError(f'--where "{predicate}": {line} {cast}The columns are {", ".join(COLUMNS)}') from None


def message_options(function: F) -> F:
    """Give a command the options that choose messages, but for topics; its function gets their values."""
    for option in reversed(
        (
            click.option(
                "--archive", default="", metavar="FOLDER", help="Read an archive instead of the topics' logs."
            ),
            click.option(
                "--from", "start_ms", type=MOMENT, help="Only messages published at or after this time; RFC 3339 or ms."
            ),
            click.option("--to", "end_ms", type=MOMENT, help="Only messages published before this time."),
            click.option("--where", default="", metavar="SQL", help=f"A predicate over {', '.join(COLUMNS)}."),
            click.option("--allow-data-loss", is_flag=True, help="Go on without messages that are lost or damaged."),
        )
    ):
        function = option(function)
    return function
