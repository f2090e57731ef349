"""DataFrames of several topics' logs: filters that are pushed down, columns, values, and streams into files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.process import NsqdProcess
from tests.spark.counting_proxy import CountingProxy
from tests.spark.log_stream import keep, options, stream_options, url

LONG = 180
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
EACH = 3000
GROUPS = 10


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    """The topics a and b have 3000 messages each, in 10 groups, and timestamps a millisecond apart at least."""
    keep(real_nsqd, "a", "b")
    for group in range(GROUPS):
        for topic in "ab":
            size = EACH // GROUPS
            bodies = (b'{"n": %d, "pad": "%s"}' % (group * size + at, b"x" * 100) for at in range(size))
            assert real_nsqd.http("POST", f"/mpub?topic={topic}", b"\n".join(bodies)).status == 200
        # The broker stamps a group with the time: the next one is to have a later one.
        time.sleep(0.002)
    return real_nsqd


@pytest.fixture
def proxy(broker: NsqdProcess) -> Iterator[CountingProxy]:
    with CountingProxy(broker) as counting:
        yield counting


def read(spark: SparkSession, address: str, **more: str) -> DataFrame:
    given = options(nsqdHttpAddresses=address, fetchBytes="20000", **more)
    return spark.read.format("nsq").options(**given).load()


def test_pushed_filters_read_only_what_they_need(spark: SparkSession, proxy: CountingProxy) -> None:
    given = {"subscribePattern": "[ab]", "timestampSlackMs": "0", "pushFilters": "true"}
    rows = sorted(read(spark, proxy.address, **given).select("topic", "position", "timestamp").collect())
    _, whole = proxy.take()
    low, high = rows[600].position, rows[629].position
    early, late = rows[EACH + 900].timestamp, rows[EACH + 1199].timestamp
    filters = {
        f"topic = 'a' AND position >= {low} AND position <= {high}": 30,
        f"timestamp BETWEEN timestamp'{early}' AND timestamp'{late}' AND topic = 'b'": 300,
        "topic IN ('x', 'y')": 0,
    }
    for text, count in filters.items():
        assert count == read(spark, proxy.address, **given).where(text).count(), text
        _, narrow = proxy.take()
        assert narrow < whole / 4, f"{text}: {narrow} of {whole} bytes"
    assert read(spark, proxy.address, **given).where("position < 0 OR topic = 'a'").count() == EACH


@pytest.mark.parametrize("given", [{"pushFilters": "false"}, {"pushFilters": "true"}])
def test_a_session_without_pushdown_has_all_rows(
    spark: SparkSession, broker: NsqdProcess, given: dict[str, str]
) -> None:
    before = spark.conf.get(PUSHDOWN)
    assert before == "true", "local_session sets it"
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert read(spark, url(broker), subscribe="a,b", **given).where("topic = 'b'").count() == EACH
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_a_frame_that_is_used_twice_has_all_rows_unless_it_pushes_filters(
    spark: SparkSession, broker: NsqdProcess
) -> None:
    """Spark has one plan for all uses of a frame. When it is mended, `pushFilters` can become the default."""

    def counts(frame: DataFrame) -> list[tuple[str, int]]:
        both = frame.where("topic = 'a'").union(frame.where("topic = 'b'"))
        return sorted((row.topic, row["count"]) for row in both.groupBy("topic").count().collect())

    assert counts(read(spark, url(broker), subscribe="a,b")) == [("a", EACH), ("b", EACH)]
    assert counts(read(spark, url(broker), subscribe="a,b", pushFilters="true")) == [("b", EACH)]


def test_columns(spark: SparkSession, broker: NsqdProcess) -> None:
    frame = read(spark, url(broker), topic="a", columns="position,value")
    assert frame.columns == ["position", "value"]
    first, last = (frame.orderBy("position", ascending=each).first() for each in (True, False))
    assert first and last
    assert (
        last.position - first.position,
        json.loads(first.value)["n"],
        json.loads(last.value)["n"],
    ) == (EACH - 1, 0, EACH - 1)


class Stream:
    """A query into files, which can be run again with other options."""

    def __init__(self, spark: SparkSession, folder: Path, broker: NsqdProcess) -> None:
        self._spark, self._folder, self._broker = spark, folder, broker

    def run(self, **more: str) -> StreamingQuery:
        frame = self._spark.readStream.format("nsq").options(**stream_options(self._broker, **more)).load()
        writer = frame.selectExpr("topic", "value.n AS n").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start(str(self._folder / "out"))
        assert query.awaitTermination(LONG)
        return query

    def rows(self) -> list[tuple[str, int]]:
        return sorted((row.topic, row.n) for row in self._spark.read.parquet(str(self._folder / "out")).collect())


JSON = {"valueFormat": "json", "valueSchema": "n INT"}


def test_a_stream_of_several_topics_goes_on_from_the_checkpoint_of_one(
    spark: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, broker)
    stream.run(topic="a", startingOffsets="earliest", **JSON)
    assert [("a", number) for number in range(EACH)] == stream.rows()
    stream.run(subscribe="a", **JSON)
    query = stream.run(subscribePattern="[abc]", maxOffsetsPerTrigger="2000", **JSON)
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [2000, 1000]
    keep(broker, "c")
    broker.publish("c", [b'{"n": 1}', b'{"n": 2}'])
    stream.run(subscribePattern="[abc]", **JSON)
    expected = [(topic, number) for topic in "ab" for number in range(EACH)] + [("c", 1), ("c", 2)]
    assert expected == stream.rows()


def test_a_stream_from_a_moment(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    found = read(spark, url(broker), topic="a").groupBy().agg({"timestamp": "max"}).first()
    assert found
    stream = Stream(spark, tmp_path, broker)
    stream.run(subscribe="a,b", startingTimestamp=str(int(found[0].timestamp() * 1000)), **JSON)
    assert [(topic, number) for topic in "ab" for number in range(EACH - EACH // GROUPS, EACH)] == stream.rows()


def test_a_stream_with_an_end_fails_with_the_reason(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match='"endingTimestamp" is for a batch, because a stream has no end'):
        Stream(spark, tmp_path, broker).run(topic="a", endingTimestamp="1767225600000", **JSON)


def test_values_of_a_schema(spark: SparkSession, broker: NsqdProcess) -> None:
    broker.publish("a", [b'{"n": "many"}'])
    frame = read(spark, url(broker), topic="a", onMalformed="null", **JSON)
    assert frame.schema["value"].dataType.simpleString() == "struct<n:int>"
    found = frame.selectExpr("sum(value.n) AS total", "count_if(value IS NULL) AS nulls").first()
    assert found and (sum(range(EACH)), 1) == (found.total, found.nulls)
    message = r'topic "a" on http://\S+, position \d+: the value is no JSON of this schema: "many" is of another type'
    with pytest.raises(PythonException, match=message):
        read(spark, url(broker), topic="a", **JSON).count()


def test_values_of_a_channel(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    broker.create("c", "spark")
    broker.publish("c", [b'{"n": 1}', b'{"n": 2}', b"?"])
    given = {
        "nsqdTcpAddresses": f"127.0.0.1:{broker.tcp_port}",
        "topic": "c",
        "channel": "spark",
        "columns": "value,attempts",
        "idleTimeoutMs": "300",
        **JSON,
    }
    with pytest.raises(
        PythonException, match=r'topic "c", channel "spark" on \S+, message \w{16}: the value is no JSON'
    ):
        spark.read.format("nsq").options(**given, ackMode="peek").load().collect()
    tolerant = given | {"onMalformed": "null"}
    batch = spark.read.format("nsq").options(**tolerant, ackMode="peek").load()
    assert batch.columns == ["value", "attempts"]
    assert {1, 2, None} == {row.value and row.value.n for row in batch.collect()}  # given back, in any order
    stream = spark.readStream.format("nsq").options(**tolerant, spoolPath=str(tmp_path / "spool")).load()
    writer = stream.selectExpr("value.n AS n").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.start(str(tmp_path / "out")).awaitTermination(LONG)
    assert {1, 2, None} == {row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()}
