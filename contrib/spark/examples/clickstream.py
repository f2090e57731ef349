"""
A pipeline of clicks: from files through NSQ into windows of ten minutes in Parquet files. At the end the windows are
compared with a computation from the files.

    files of JSON ──▶ clean ──▶ join users ──▶ format("nsq") ──▶ topic "clicks"
                                                                     │ channel "spark"
    parquet ◀── 10-minute windows by event and country ◀── format("nsq") as a stream

    python -m contrib.spark.examples.clickstream          # clicks and a broker of its own; --help for yours

A click is a line {"time": seconds since 1970, "user": text, "event": text, "agent": text}. Other lines and clicks of a
"robot" are left out. The file of users is CSV with the columns user and country. Exit status 0: the windows
are equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark_nsq.session import local_session

from contrib.demo.broker import Broker
from contrib.spark.examples import events

TOPIC, CHANNEL = "clicks", "spark"
CLICK = "time bigint, user string, event string, agent string"
MESSAGE = "time bigint, event string, country string"
#: Time of a last click, later than all others, so that their windows are complete and written. Its own window is not.
_FLUSH_TIME = 4_102_444_800
_LATENESS = "10 minutes"
_WINDOW = "10 minutes"


@dataclass(frozen=True)
class Job:
    """The input files, the folder for the results, and `http` and `tcp`: host:port of the broker."""

    clicks: str
    users: str
    http: str
    tcp: str
    folder: Path


def cleaned(spark: SparkSession, job: Job) -> DataFrame:
    """Return the valid clicks of people, each with the country of its user."""
    clicks = spark.read.schema(CLICK).option("mode", "DROPMALFORMED").json(job.clicks)
    users = spark.read.option("header", True).schema("user string, country string").csv(job.users)
    good = clicks.where("time IS NOT NULL AND event IS NOT NULL AND coalesce(agent, '') <> 'robot'")
    return good.join(f.broadcast(users), "user").select("time", "event", "country")


def publish(rows: DataFrame, job: Job) -> None:
    """Publish each row as a message."""
    (
        rows.selectExpr("to_json(struct(*)) AS value")
        .write.format("nsq")
        .mode("append")
        .option("nsqdHttpAddresses", job.http)
        .option("topic", TOPIC)
        .option("showProgress", "true")
        .save()
    )


def windows(clicks: DataFrame) -> DataFrame:
    """Count the clicks of each window by event and country."""
    at = clicks.withColumn("at", f.timestamp_seconds("time"))
    if at.isStreaming:
        at = at.withWatermark("at", _LATENESS)
    counted = at.groupBy(f.window("at", _WINDOW).alias("span"), "event", "country").count()
    return counted.selectExpr("span.start AS start", "event", "country", "count")


def stream(spark: SparkSession, job: Job) -> None:
    """Write the windows of the messages that the channel has. The next call continues from the checkpoint."""
    messages = (
        spark.readStream.format("nsq")
        .option("nsqdTcpAddresses", job.tcp)
        .option("topic", TOPIC)
        .option("channel", CHANNEL)
        .option("spoolPath", str(job.folder / "spool"))
        .option("maxRowsPerTrigger", 50_000)
        .load()
    )
    clicks = messages.select(f.from_json(f.col("value").cast("string"), MESSAGE).alias("click")).select("click.*")
    query = (
        windows(clicks)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(job.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(job.folder / "windows"))
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"micro-batch {progress.batchId}: {progress.numInputRows:,} messages", flush=True)


def run(job: Job) -> bool:
    """Run the pipeline, and return whether the windows from NSQ equal those of the files."""
    # The channel is created first: without a channel, the messages would wait for the first one.
    for path in (f"topic/create?topic={TOPIC}", f"channel/create?topic={TOPIC}&channel={CHANNEL}"):
        urllib.request.urlopen(urllib.request.Request(f"http://{job.http}/{path}", method="POST"), timeout=30).close()
    spark = local_session("clickstream")
    start = time.monotonic()
    rows = cleaned(spark, job).cache()
    publish(rows, job)
    flush = spark.createDataFrame([(_FLUSH_TIME, "flush", "")], MESSAGE)
    publish(flush, job)
    stream(spark, job)
    expected = windows(rows)
    found = spark.read.parquet(str(job.folder / "windows")).where("event <> 'flush'")
    wrong = expected.exceptAll(found).count() + found.exceptAll(expected).count()
    seconds = time.monotonic() - start
    print(f"{rows.count():,} clicks in {expected.count():,} windows, {wrong} of them wrong, {seconds:.0f} s")
    spark.stop()
    return wrong == 0


@contextmanager
def _broker(given: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield HTTP and TCP address of the given broker, or of a temporary one."""
    if given.http:
        yield given.http, given.tcp
        return
    with Broker(Path(sys.executable).parent / "nsqd", folder) as broker:
        broker.start()
        yield broker.http, broker.tcp


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m contrib.spark.examples.clickstream", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--clicks", help="pattern of files of JSON lines")
    parser.add_argument("--users", help="the file of users for them")
    parser.add_argument("--http", help="HTTP address of an nsqd")
    parser.add_argument("--tcp", help="TCP address of the same")
    parser.add_argument("--count", type=int, default=20_000, help="clicks to make up (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    given = parser.parse_args(arguments)
    if bool(given.clicks) != bool(given.users) or bool(given.http) != bool(given.tcp):
        parser.error("--clicks goes with --users, and --http with --tcp")
    with tempfile.TemporaryDirectory(prefix="clickstream-") as name:
        folder = Path(name)
        clicks, users = (given.clicks, given.users) if given.clicks else events.write(folder, given.count, given.seed)
        with _broker(given, folder) as (http, tcp):
            return 0 if run(Job(clicks, users, http, tcp, folder)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
