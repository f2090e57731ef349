"""Out of NSQ: a topic's log by position, and a channel through the spool."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.parquet import ParquetTable, configure
from pyspark_nsq.archive.run import Run
from pyspark_nsq.archive.source import Subscription

from ..errors import WrongCount
from ..server import Broker

TOPIC, CHANNEL = "read", "spark"
#: Long enough that a pause of a busy machine is not taken for the end.
_SILENCE_SECONDS = 3
_LOOK_SECONDS = 0.05
#: Rows of a micro-batch, whose bytes go through the heap of Java. Without a limit it is all that the spool takes.
_MICRO_BATCH = 500_000


def prepare(broker: Broker) -> None:
    """A topic that keeps what it has, and a channel of it: to be filled."""
    broker.create(TOPIC, (CHANNEL,))
    broker.ask("POST", f"/v2/topic/retention?topic={TOPIC}&time=24h")


def count_log(spark: SparkSession, broker: Broker, expected: int) -> None:
    """``replay=log``, no columns needed of the rows: they are read and taken apart in any case."""
    _must_be("the log, counted", expected, _log(spark, broker).count())


def log_to_parquet(spark: SparkSession, broker: Broker, folder: Path) -> None:
    """``replay=log``, all columns, into files."""
    _log(spark, broker).write.mode("overwrite").parquet(str(folder / "log"))


def log_to_noop(spark: SparkSession, broker: Broker, **more: str) -> None:
    """``replay=log``, all columns, which are thrown away."""
    _log(spark, broker, more).write.format("noop").mode("overwrite").save()


def channel_to_parquet(spark: SparkSession, broker: Broker, folder: Path) -> float:
    """A stream that takes all there is in the channel, through the spool, into files.

    Return the seconds of silence that end it.
    """
    place = folder / "channel"
    query = _channel(spark, broker, place).trigger(availableNow=True).start(str(place / "out"))
    query.awaitTermination()
    return _SILENCE_SECONDS


def drain_channel(spark: SparkSession, broker: Broker, folder: Path, count: int) -> None:
    """The same for `count` rows that may be more than a spool takes: a stream that goes on until it has them."""
    place = folder / "channel"
    stream = _channel(spark, broker, place, maxRowsPerTrigger=str(_MICRO_BATCH))
    query = stream.trigger(processingTime="0 seconds").start(str(place / "out"))
    last = 0
    while last < count and query.isActive:
        # Spark announces no row count that a caller could wait for.
        time.sleep(_LOOK_SECONDS)
        progress = query.lastProgress
        # The rows of a new spool are numbered from 1.
        last = json.loads(progress["sources"][0]["endOffset"])["seq"] if progress else 0
    query.stop()


def _channel(spark: SparkSession, broker: Broker, place: Path, **more: str) -> DataStreamWriter:
    shutil.rmtree(place, ignore_errors=True)
    options = {
        "nsqdTcpAddresses": f"127.0.0.1:{broker.tcp_port}",
        "topic": TOPIC,
        "channel": CHANNEL,
        "spoolPath": str(place / "spool"),
        "idleTimeoutMs": str(_SILENCE_SECONDS * 1000),
    }
    stream = spark.readStream.format("nsq").options(**options, **more).load()
    return stream.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))


def archive(spark: SparkSession, broker: Broker, folder: Path, codec: str = "zstd") -> None:
    """All that ``nsqtw-spark archive --once`` does once it has a session."""
    place = folder / "archive"
    shutil.rmtree(place, ignore_errors=True)
    session = spark.newSession()
    configure(session)
    topics = Subscription((TOPIC,), None, {"nsqdHttpAddresses": f"127.0.0.1:{broker.http_port}"})
    table = ParquetTable(Files(session, str(place)), codec)
    table.recover()
    Run(topics.stream(session), table, str(place / "_archive/checkpoint"), lambda line: None).once()


def check(spark: SparkSession, folder: Path, name: str, expected: int) -> None:
    """Raises WrongCount when the files of one of these hold another number of rows, or one twice."""
    ids = spark.read.parquet(str(_files(folder, name))).select("id")
    _must_be(f"{name} to parquet", expected, ids.distinct().count())


def bodies(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and a checksum of their bodies in any order."""
    found = rows.selectExpr("count(*)", "bit_xor(xxhash64(CAST(value AS BINARY)))").first()
    assert found is not None
    return found[0], found[1]


def check_bodies(spark: SparkSession, folder: Path, name: str, expected: tuple[int, int]) -> None:
    """As `check`, for more rows than can be sorted: raises WrongCount when a body is missing, or there twice."""
    found = bodies(spark.read.parquet(str(_files(folder, name))))
    if found != expected:
        raise WrongCount(f"{name} to parquet: {expected} are rows and checksum of what was published, {found} of files")


def _files(folder: Path, name: str) -> Path:
    return folder / name / "out" if name == "channel" else folder / name


def _log(spark: SparkSession, broker: Broker, more: Mapping[str, str] | None = None) -> DataFrame:
    options = {"replay": "log", "nsqdHttpAddresses": f"127.0.0.1:{broker.http_port}", "topic": TOPIC}
    return spark.read.format("nsq").options(**options, **(more or {})).load()


def _must_be(what: str, expected: int, found: int) -> None:
    if found != expected:
        raise WrongCount(f"{what}: {expected:,} rows should have been read, there are {found:,}")
