"""``format("nsq")`` with Spark Connect: the client has no Java, and the connector runs on the server.

`make test-spark` collects this: the client of Spark Connect needs pandas and gRPC, some 200 MB.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f
from pyspark_nsq.monitoring import NsqListener, listen

from tests.process import NsqdProcess, wait_until
from tests.spark_connect.server import ConnectServer
from tests.wire import HOST

LONG = 180
ROWS = 2000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    server = ConnectServer(tmp_path_factory.mktemp("server"))
    try:
        session = SparkSession.builder.remote(server.url).getOrCreate()
        assert type(session).__module__ == "pyspark.sql.connect.session"
        yield session
        session.stop()
    finally:
        server.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path / "broker")
    try:
        process.start()
        process.create("t", "c")
        process.order("/v2/topic/retention?topic=t&time=1h")
        yield process
    finally:
        process.close()


def sink(broker: NsqdProcess, **more: str) -> dict[str, str]:
    return {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}", "topic": "t"} | more


def log(broker: NsqdProcess, **more: str) -> dict[str, str]:
    return sink(broker, replay="log", **more)


def channel(broker: NsqdProcess, **more: str) -> dict[str, str]:
    return {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c"} | more


def publish(spark: SparkSession, broker: NsqdProcess) -> None:
    rows = spark.range(ROWS).selectExpr("cast(id AS string) AS value")
    rows.write.format("nsq").mode("append").options(**sink(broker)).save()


def numbers(rows: list) -> list[int]:
    return sorted(int(row.value) for row in rows)


def test_what_is_written_is_read_from_the_log_and_the_channel(spark: SparkSession, broker: NsqdProcess) -> None:
    publish(spark, broker)
    for options in (log(broker), channel(broker)):
        frame = spark.read.format("nsq").options(**options).load()
        assert numbers(frame.selectExpr("cast(value AS string) AS value").collect()) == list(range(ROWS)), options


def test_a_write_is_counted_by_an_observation_and_by_the_log(spark: SparkSession, broker: NsqdProcess) -> None:
    seen = Observation()
    rows = spark.range(ROWS).selectExpr("cast(id AS string) AS value").observe(seen, f.count(f.lit(1)).alias("rows"))
    rows.write.format("nsq").mode("append").options(**sink(broker)).save()
    assert seen.get == {"rows": ROWS}
    assert spark.read.format("nsq").options(**log(broker)).load().count() == ROWS


@pytest.mark.parametrize("source", [log, channel])
def test_a_stream_copies_each_message_once(spark: SparkSession, broker: NsqdProcess, source, tmp_path: Path) -> None:
    publish(spark, broker)
    more = {"spoolPath": str(tmp_path / "spool")} if source is channel else {"startingOffsets": "earliest"}
    stream = spark.readStream.format("nsq").options(**source(broker, maxRowsPerTrigger="700", **more)).load()
    files = stream.selectExpr("cast(value AS string) AS value").writeStream.format("parquet").trigger(availableNow=True)
    query = files.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    assert query.awaitTermination(LONG)
    assert numbers(spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(ROWS))


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[NsqListener]:
    listening = listen(spark, port=0, address=HOST)
    yield listening
    listening.close()


def test_a_listener_of_the_client_has_the_figures(
    spark: SparkSession, broker: NsqdProcess, listener: NsqListener, tmp_path: Path
) -> None:
    broker.create("u")
    publish(spark, broker)
    stream = spark.readStream.format("nsq").options(**log(broker, startingOffsets="earliest", maxRowsPerTrigger="700"))
    writer = stream.load().select("value").writeStream.format("nsq").queryName("copy").trigger(availableNow=True)
    settings = {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = writer.options(**sink(broker) | {"topic": "u"} | settings).start()
    assert query.awaitTermination(LONG)

    def samples() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{HOST}:{listener.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    wait_until(lambda: samples().get('nsq_spark_query_active{query="copy"}') == 0, "the end is known", LONG)
    found = samples()
    assert found['nsq_spark_input_rows_total{query="copy"}'] == ROWS
    assert found['nsq_spark_sink_rows_total{query="copy"}'] == ROWS
    assert found['nsq_spark_batch_duration_seconds_count{query="copy"}'] >= 3


def test_a_mistake_is_told_with_its_remedy(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r'unknown option "topik"; did you mean "topic"?'):
        spark.read.format("nsq").options(replay="log", topik="t", nsqdHttpAddresses=HOST + ":1").load().collect()
