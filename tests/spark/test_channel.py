"""``spark.read`` and ``spark.readStream`` of a channel of a real broker."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.process import NOTHING, Counts, NsqdProcess, wait_until
from tests.wire import HOST

LONG = 180


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t", "spark")
    return real_nsqd


def publish(broker: NsqdProcess, start: int, stop: int) -> list[str]:
    """Messages with the numbers from `start` to before `stop`."""
    bodies = [str(number) for number in range(start, stop)]
    answer = broker.http("POST", "/mpub?topic=t", "\n".join(bodies).encode())
    assert answer.status == 200, answer
    return bodies


def options(broker: NsqdProcess, **more: str) -> dict[str, str]:
    return {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "spark"} | more


def read(spark: SparkSession, broker: NsqdProcess, **more: str) -> DataFrame:
    return spark.read.format("nsq").options(**options(broker, idleTimeoutMs="300", **more)).load()


class Stream:
    """A query that writes the values it reads into files, and can be run again where it ended."""

    def __init__(self, spark: SparkSession, broker: NsqdProcess, folder: Path, **more: str) -> None:
        self._spark, self._folder = spark, folder
        given = {"spoolPath": str(folder / "spool"), "idleTimeoutMs": "300"} | more
        self._options = options(broker, **given)

    def start(self, *, available_now: bool = True) -> StreamingQuery:
        stream = self._spark.readStream.format("nsq").options(**self._options).load()
        writer = stream.selectExpr("cast(value AS string) AS value", "attempts", "nsqd").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self._folder / "out"))

    def run(self) -> StreamingQuery:
        query = self.start()
        assert query.awaitTermination(LONG)
        return query

    def values(self) -> list[str]:
        frame = self._spark.read.schema("value string").parquet(str(self._folder / "out"))
        return sorted((row.value for row in frame.collect()), key=int)


def test_a_batch_has_the_columns_of_a_message(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(broker, 0, 1)
    [row] = read(spark, broker).collect()
    assert (bytes(row.value), row.topic, row.channel, row.attempts) == (b"0", "t", "spark", 1)
    assert len(row.id) == 16 and f"{HOST}:{broker.tcp_port}" == row.nsqd
    assert row.timestamp.year >= 2026
    broker.await_counts("t", "spark", NOTHING)


def test_all_actions_on_a_batch_see_the_same_rows_and_the_next_one_others(
    spark: SparkSession, broker: NsqdProcess
) -> None:
    bodies = publish(broker, 0, 1000)
    frame = read(spark, broker, maxMessages="600")
    first = sorted(row.value for row in frame.select("value").collect())
    assert 600 == len(first) == frame.count()
    broker.await_counts("t", "spark", Counts(depth=400, in_flight=0, deferred=0))
    second = [row.value for row in read(spark, broker).collect()]
    assert Counter(body.encode() for body in bodies) == Counter(bytes(value) for value in [*first, *second])


def test_peek_gives_the_messages_back(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    assert read(spark, broker, ackMode="peek").count() == 10
    broker.await_counts("t", "spark", Counts(depth=10, in_flight=0, deferred=0))
    assert [row.attempts for row in read(spark, broker).collect()] == [2] * 10


def test_an_empty_channel(spark: SparkSession, broker: NsqdProcess) -> None:
    assert read(spark, broker).count() == 0


def test_a_stream_reads_each_message_once_over_restarts(
    spark: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    stream = Stream(spark, broker, tmp_path, maxRowsPerTrigger="400")
    bodies = publish(broker, 0, 1000)
    query = stream.run()
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [400, 400, 200]
    assert bodies == stream.values()
    broker.await_counts("t", "spark", NOTHING)
    bodies += publish(broker, 1000, 1100)
    stream.run()
    assert bodies == stream.values()


@pytest.mark.parametrize("mode", ["auto", "inline", "shared"])
def test_micro_batches_of_bytes(spark: SparkSession, broker: NsqdProcess, tmp_path: Path, mode: str) -> None:
    stream = Stream(spark, broker, tmp_path, maxBytesPerTrigger="25", spoolMode=mode)
    bodies = publish(broker, 10, 40)
    query = stream.run()
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [12, 12, 6]
    assert bodies == stream.values()


def test_a_stream_that_goes_on_and_is_stopped_gives_back_what_it_did_not_take(
    spark: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    stream = Stream(spark, broker, tmp_path, maxSpoolRows="50", maxRowsPerTrigger="10")
    bodies = publish(broker, 0, 500)
    query = stream.start(available_now=False)
    try:
        while not query.recentProgress or query.recentProgress[-1].batchId < 3:
            assert query.exception() is None and not query.awaitTermination(1)
    finally:
        query.stop()
    wait_until(lambda: broker.counts("t", "spark").in_flight == 0, "what was in flight is given back")
    left = broker.counts("t", "spark").depth
    assert 0 < left < 500
    Stream(spark, broker, tmp_path).run()
    assert bodies == stream.values()


def test_a_spool_of_another_checkpoint(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 10)
    Stream(spark, broker, tmp_path).run()
    publish(broker, 10, 20)
    with pytest.raises(StreamingQueryException, match="does not belong to this checkpoint"):
        Stream(spark, broker, tmp_path, spoolPath=str(tmp_path / "other")).run()
    stream = Stream(spark, broker, tmp_path, spoolPath=str(tmp_path / "other"), failOnDataLoss="false")
    stream.run()
    assert [str(number) for number in range(20)] == stream.values()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"channel": ""}, '"channel": "" is no channel name'),
        ({"nsqdTcpAddresses": "nowhere"}, '"nowhere" is not host:port'),
        ({"maxRowsPerTriggers": "1"}, 'did you mean "maxRowsPerTrigger"'),
        ({"lookupdHttpAddresses": "a:1"}, "exclude each other"),
        ({"tls.verify": "false"}, '"tls" is not true'),
    ],
)
def test_mistakes_are_told_at_once(spark: SparkSession, broker: NsqdProcess, given: dict[str, str], said: str) -> None:
    for reader in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException) as caught:
            reader.format("nsq").options(**options(broker) | given).load()
        assert said in str(caught.value)


def test_a_stream_needs_a_spool(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    stream = spark.readStream.format("nsq").options(**options(broker)).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(StreamingQueryException, match='option "spoolPath" is required'):
        query.awaitTermination(LONG)


def test_nobody_to_read_from(spark: SparkSession, broker: NsqdProcess) -> None:
    broker.stop()
    with pytest.raises((PythonException, AnalysisException), match=r"nothing to read from: nsqd .*refused"):
        read(spark, broker, maxWaitMs="500").count()


def test_an_nsqd_that_refuses(spark: SparkSession, broker: NsqdProcess) -> None:
    with pytest.raises((PythonException, AnalysisException), match="msg timeout"):
        read(spark, broker, msgTimeoutMs="86400000").count()


def test_progress_has_the_offsets(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 7)
    query = Stream(spark, broker, tmp_path).run()
    source = query.recentProgress[0].sources[0]
    assert tuple(json.loads(offset)["seq"] for offset in (source.endOffset, source.latestOffset)) == (7, 7)
