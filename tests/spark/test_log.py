"""``replay=log`` from a real broker: by position, any number of times, without a channel."""

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.process import ForkedNsqd, NsqdProcess
from tests.wire import HOST

LONG = 180


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    return real_nsqd


def publish(broker: NsqdProcess, start: int, stop: int) -> list[str]:
    bodies = [str(number) for number in range(start, stop)]
    answer = broker.http("POST", "/mpub?topic=t", "\n".join(bodies).encode())
    assert answer.status == 200, answer
    return bodies


def options(*brokers: NsqdProcess, **more: str) -> dict[str, str]:
    addresses = ",".join(f"{HOST}:{broker.http_port}" for broker in brokers)
    return {"replay": "log", "nsqdHttpAddresses": addresses, "topic": "t"} | more


def read(spark: SparkSession, *brokers: NsqdProcess, **more: str) -> DataFrame:
    return spark.read.format("nsq").options(**options(*brokers, **more)).load()


def values(frame: DataFrame) -> list[str]:
    return sorted((row.value for row in frame.selectExpr("cast(value AS string) AS value").collect()), key=int)


class Stream:
    def __init__(self, spark: SparkSession, folder: Path, *brokers: NsqdProcess, **more: str) -> None:
        self._spark, self._folder = spark, folder
        self._options = options(*brokers, **({"startingOffsets": "earliest"} | more))

    def run(self) -> StreamingQuery:
        stream = self._spark.readStream.format("nsq").options(**self._options).load()
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start(str(self._folder / "out"))
        assert query.awaitTermination(LONG)
        return query

    def values(self) -> list[str]:
        return values(self._spark.read.parquet(str(self._folder / "out")))


def test_the_columns(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(broker, 0, 2)
    answer = broker.http("POST", "/pub?topic=t&defer=60000", b"2")
    assert answer.status == 200
    rows = sorted(read(spark, broker).collect(), key=lambda row: int(row.position))
    assert [bytes(row.value) for row in rows] == [b"0", b"1", b"2"]
    assert [rows[0].position + at for at in range(3)] == [row.position for row in rows]
    assert [int(row.id, 16) & (1 << 53) - 1 for row in rows] == [row.position for row in rows]
    assert {(f"{HOST}:{broker.http_port}", "t")} == {(row.nsqd, row.topic) for row in rows}
    assert [row.due and round((row.due - row.timestamp).total_seconds()) for row in rows] == [None, None, 60]


def test_headers_are_written_and_read(spark: SparkSession, broker: NsqdProcess) -> None:
    rows: list[tuple[object, ...]] = [
        ("1", {"tenant": "acme"}, "k", None, None),
        ("2", None, None, "o-2", None),
        ("3", {}, None, None, None),
        ("4", {"tenant": "acme"}, None, None, 60_000),
    ]
    frame = spark.createDataFrame(rows, "value string, headers map<string,string>, key string, id string, defer long")
    writer = frame.write.format("nsq").mode("append").option("nsqdHttpAddresses", f"{HOST}:{broker.http_port}")
    writer.option("topic", "t").save()
    found = read(spark, broker, includeHeaders="true", columns="value,headers,due").collect()
    assert {bytes(row.value): row.headers for row in found} == {
        b"1": {"tenant": "acme", "key": "k"},
        b"2": {"id": "o-2"},
        b"3": None,
        b"4": {"tenant": "acme"},
    }
    assert [bytes(row.value) for row in found if row.due is not None] == [b"4"]
    assert "headers" in read(spark, broker, includeHeaders="true").columns
    assert "headers" not in read(spark, broker).columns


def test_every_read_has_all_rows_over_a_crash_of_the_broker(spark: SparkSession, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 500)
    assert bodies == values(read(spark, broker))
    broker.kill()
    broker.start()
    bodies += publish(broker, 500, 600)  # behind a gap: positions come in blocks
    assert bodies == values(read(spark, broker, fetchBytes="3000")) == values(read(spark, broker))


def another_millisecond() -> int:
    """The Unix time in ms, once it is one in which nothing was published yet: a range has no finer bounds."""
    before = now = int(time.time() * 1000)
    while now <= before:
        time.sleep(0.001)
        now = int(time.time() * 1000)
    return now


def test_a_range_of_time(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    start = another_millisecond()
    middle = publish(broker, 10, 20)
    end = another_millisecond()
    publish(broker, 20, 30)
    assert middle == values(read(spark, broker, startingTimestamp=str(start), endingTimestamp=str(end)))


def test_a_range_of_positions(spark: SparkSession, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 10)
    first = json.loads(broker.http("GET", "/v2/topic/log/range?topic=t").body)["first"]
    address = f"{HOST}:{broker.http_port}"
    given = {"startingOffsets": json.dumps({address: first + 3}), "endingOffsets": json.dumps({address: first + 7})}
    assert bodies[3:7] == values(read(spark, broker, **given))


def test_a_stream_goes_on_where_it_was(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, broker, maxRowsPerTrigger="400")
    bodies = publish(broker, 0, 1000)
    query = stream.run()
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [400, 400, 200]
    broker.restart()
    bodies += publish(broker, 1000, 1100)
    query = stream.run()
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [100], "a gap takes no batches"
    assert bodies == stream.values()


def test_micro_batches_of_bytes(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, broker, maxBytesPerTrigger="400")
    bodies = publish(broker, 10, 40)  # 36 bytes each with its header
    query = stream.run()
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [11, 11, 8]
    assert bodies == stream.values()


def test_several_brokers_and_two_queries_on_one_log(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    second = ForkedNsqd(tmp_path / "second")
    try:
        second.start()
        stream = Stream(spark, tmp_path, broker, second, maxRowsPerTrigger="30")
        bodies = publish(broker, 0, 50)
        stream.run()  # the second does not know the topic yet
        second.create("t")
        second.order("/v2/topic/retention?topic=t&time=1h")
        bodies += publish(second, 50, 90)
        stream.run()
        assert bodies == stream.values() == values(read(spark, broker, second))
    finally:
        second.close()


def test_what_is_no_longer_kept_is_loss(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 10)
    address = f"{HOST}:{broker.http_port}"
    first = json.loads(broker.http("GET", "/v2/topic/log/range?topic=t").body)["first"]
    broker.order("/topic/delete?topic=t")
    broker.create("t")
    broker.order("/v2/topic/retention?topic=t&time=1h")
    bodies = publish(broker, 10, 20)
    start = json.dumps({address: first})
    with pytest.raises((AnalysisException, PythonException), match="is no longer kept"):
        read(spark, broker, startingOffsets=start).count()
    assert bodies == values(read(spark, broker, startingOffsets=start, failOnDataLoss="false"))


def test_a_batch_of_a_topic_nobody_knows_is_an_error(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(broker, 0, 3)
    base = {"replay": "log", "nsqdHttpAddresses": f"{HOST}:{broker.http_port}"}
    both = base | {"subscribe": "t,tt"}
    for given in (base | {"topic": "tt"}, both, both | {"pushFilters": "true"}):
        rows = spark.read.format("nsq").options(**given).load().where("topic = 'tt'")
        with pytest.raises((AnalysisException, PythonException), match='no nsqd has the topic "tt"; correct its name'):
            rows.count()
    assert values(spark.read.format("nsq").options(**both, failOnDataLoss="false").load()) == ["0", "1", "2"]
    pushed = spark.read.format("nsq").options(**both | {"subscribe": "t", "pushFilters": "true"}).load()
    assert pushed.where("topic = 'other'").count() == 0


def test_nobody_answers(spark: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    broker.stop()
    with pytest.raises((AnalysisException, PythonException), match="refused"):
        read(spark, broker, retries="1", backoffMs="1").count()
    with pytest.raises(StreamingQueryException, match="refused"):
        Stream(spark, tmp_path, broker, retries="1", backoffMs="1").run()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "first"}, '"startingOffsets" must be "earliest", "latest" or like'),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
        ({"channel": "c"}, 'unknown option "channel"'),
        ({"replay": "channel"}, '"replay" must be "log"'),
        ({"tls.caFile": "x"}, "no address"),
    ],
)
def test_mistakes_are_told_at_once(spark: SparkSession, broker: NsqdProcess, given: dict[str, str], said: str) -> None:
    for reader in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException) as caught:
            reader.format("nsq").options(**options(broker) | given).load()
        assert said in str(caught.value)
