"""``df.writeStream.format("nsq")`` in a real Spark, into the fake nsqd."""

import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.fake_nsqd import FakeNsqd, Misbehaviour

LONG = 120


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of the lines of the files in `tmp_path / "in"`, one file for each micro-batch."""
    (tmp_path / "in").mkdir()
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))


def write(folder: Path, name: str, *lines: str) -> None:
    """A file of `lines`; `name` is a number, in whose order the files are read."""
    file = folder / "in" / name
    file.write_text("".join(line + "\n" for line in lines))
    os.utime(file, (1_700_000_000 + int(name),) * 2)


def start(frame: DataFrame, nsqd: FakeNsqd, folder: Path, mode: str = "append", **options: str) -> StreamingQuery:
    settings = {"nsqdHttpAddresses": nsqd.address, "topic": "t", "backoffMs": "1"} | options
    settings["checkpointLocation"] = str(folder / "checkpoint")
    return frame.writeStream.format("nsq").outputMode(mode).options(**settings).trigger(availableNow=True).start()


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(LONG)


def test_each_row_arrives_once_over_restarts(lines: DataFrame, nsqd: FakeNsqd, tmp_path: Path) -> None:
    write(tmp_path, "1", "a", "b")
    write(tmp_path, "2", "c")
    query = start(lines, nsqd, tmp_path)
    finish(query)
    assert sorted(nsqd.messages["t"]) == [b"a", b"b", b"c"]
    assert sum(progress.sink.numOutputRows for progress in query.recentProgress) == 3
    write(tmp_path, "3", "d")
    finish(start(lines, nsqd, tmp_path))
    assert sorted(nsqd.messages["t"]) == [b"a", b"b", b"c", b"d"]


def test_a_micro_batch_that_failed_is_published_by_the_next_start(
    lines: DataFrame, nsqd: FakeNsqd, tmp_path: Path
) -> None:
    write(tmp_path, "1", "a")
    nsqd.script.append((400, b"BAD_DAY"))
    with pytest.raises(StreamingQueryException, match="BAD_DAY"):
        finish(start(lines, nsqd, tmp_path))
    nsqd.script.append(Misbehaviour.TAKE_AND_DROP)
    finish(start(lines, nsqd, tmp_path))
    assert nsqd.messages["t"] == [b"a", b"a"]


def test_mode_complete_publishes_all_rows_each_time(lines: DataFrame, nsqd: FakeNsqd, tmp_path: Path) -> None:
    write(tmp_path, "1", "a", "a")
    write(tmp_path, "2", "a")
    counts = lines.groupBy("value").count().selectExpr("concat(value, count) AS value")
    finish(start(counts, nsqd, tmp_path, "complete"))
    assert sorted(nsqd.messages["t"]) == [b"a2", b"a3"]


def test_mode_update_is_refused_and_foreach_batch_does_it(lines: DataFrame, nsqd: FakeNsqd, tmp_path: Path) -> None:
    write(tmp_path, "1", "a", "a")
    counts = lines.groupBy("value").count().selectExpr("concat(value, count) AS value")
    with pytest.raises(Exception, match="does not support Update mode"):
        finish(start(counts, nsqd, tmp_path, "update"))

    def publish(frame: DataFrame, _batch: int) -> None:
        frame.write.format("nsq").mode("append").option("nsqdHttpAddresses", nsqd.address).option("topic", "t").save()

    query = counts.writeStream.outputMode("update").foreachBatch(publish).trigger(availableNow=True)
    finish(query.option("checkpointLocation", str(tmp_path / "other")).start())
    assert nsqd.messages["t"] == [b"a2"]


def test_a_mistake_is_told_before_the_first_micro_batch(lines: DataFrame, nsqd: FakeNsqd, tmp_path: Path) -> None:
    write(tmp_path, "1", "a")
    with pytest.raises(Exception, match='did you mean "batchSize"'):
        finish(start(lines, nsqd, tmp_path, bachSize="1"))
    assert nsqd.requests == 0
