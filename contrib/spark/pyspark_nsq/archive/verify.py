"""The comparison of an archive with the logs of its topics, position by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_nsq.archive.checkpoint import reached
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.identity import must_exist
from pyspark_nsq.archive.layout import CHECKPOINT
from pyspark_nsq.archive.reader import read_archive
from pyspark_nsq.archive.source import Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEY = ("topic", "nsqd", "position")
_MOST_RANGES = 10


@dataclass(frozen=True)
class Difference:
    """Positions from `first` to `last` of the log of a topic at an nsqd, that are `count` rows too few or too many."""

    kind: str
    topic: str
    nsqd: str
    first: int
    last: int
    count: int


@dataclass(frozen=True)
class Verdict:
    """The result: the numbers of rows of the logs and of the archive, and of missing and repeated ones.

    `waiting`: rows of the logs behind the positions up to which the archive has read. `only_archived`: rows of the
    archive that the logs do not have any more.
    """

    logged: int
    archived: int
    missing: int
    twice: int
    waiting: int
    only_archived: int
    differences: list[Difference]

    @property
    def is_good(self) -> bool:
        return not self.missing and not self.twice


def verify(spark: SparkSession, connection: Mapping[str, str], output: str, checkpoint: str | None = None) -> Verdict:
    """Compare the archive in a folder with the logs of its topics. Raises ArchiveError and ReadError."""
    files = Files(spark, output)
    archived = must_exist(files)
    subscription = Subscription.of(archived.subscription, connection)
    subscription.check()
    ends = reached(Files(spark, checkpoint or files.path(CHECKPOINT)))
    return compare(spark, read_archive(spark, files), subscription.batch(spark), ends)


def compare(spark: SparkSession, archive: DataFrame, logs: DataFrame, reached: dict[tuple[str, str], int]) -> Verdict:
    """Compare the positions. `reached`: for topic and nsqd, the position before which all rows have to be archived."""
    from pyspark.sql import functions as f

    kept = archive.select(*_KEY, f.lit(0).alias("logged"), f.lit(1).alias("archived"))
    read = logs.select(*_KEY, f.lit(1).alias("logged"), f.lit(0).alias("archived"))
    counted = kept.union(read).groupBy(*_KEY).agg(f.sum("logged").alias("logged"), f.sum("archived").alias("archived"))
    ends = spark.createDataFrame(
        [(topic, nsqd, end) for (topic, nsqd), end in reached.items()], "topic string, nsqd string, reached long"
    )
    places = counted.join(f.broadcast(ends), ["topic", "nsqd"], "left").withColumns(
        {
            "twice": f.greatest(f.col("archived") - 1, f.lit(0)),
            "absent": ((f.col("logged") > 0) & (f.col("archived") == 0)).cast("int"),
            "is_due": f.coalesce(f.col("position") < f.col("reached"), f.lit(True)),
        }
    )
    places = places.cache()
    try:
        sums = places.agg(
            f.sum("logged").alias("logged"),
            f.sum("archived").alias("archived"),
            f.sum(f.when(f.col("is_due"), f.col("absent"))).alias("missing"),
            f.sum("twice").alias("twice"),
            f.sum(f.when(~f.col("is_due"), f.col("absent"))).alias("waiting"),
            f.sum((f.col("logged") == 0).cast("int")).alias("only_archived"),
        ).first()
        assert sums is not None
        numbers = {name: int(number or 0) for name, number in sums.asDict().items()}
        wrong = {"missing": f.col("is_due") & (f.col("absent") == 1), "twice": f.col("twice") > 0}
        differences = [
            one
            for kind, column in wrong.items()
            for one in _ranges(kind, places.where(column).withColumn("count", f.greatest("absent", "twice")))
        ]
    finally:
        places.unpersist()
    return Verdict(**numbers, differences=differences)


def _ranges(kind: str, places: DataFrame) -> list[Difference]:
    """Return the first ranges of positions that follow one upon the other."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    row = f.row_number().over(Window.partitionBy("topic", "nsqd").orderBy("position"))
    grouped = places.withColumn("island", f.col("position") - row).groupBy("topic", "nsqd", "island")
    ranges = grouped.agg(
        f.min("position").alias("first"), f.max("position").alias("last"), f.sum("count").alias("count")
    )
    return [
        Difference(kind, each["topic"], each["nsqd"], each["first"], each["last"], each["count"])
        for each in ranges.orderBy("topic", "nsqd", "first").limit(_MOST_RANGES).collect()
    ]
