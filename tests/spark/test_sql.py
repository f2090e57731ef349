"""SQL: views on logs, a view that publishes, and the table function ``nsq_log``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark_nsq.sql import register

from tests.process import NsqdProcess
from tests.spark.log_stream import address, keep, options


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    keep(real_nsqd, "clicks", "orders")
    real_nsqd.publish("clicks", [b"1", b"2", b"3"])
    real_nsqd.publish("orders", [b"4"])
    return real_nsqd


@pytest.fixture
def sql(spark: SparkSession, broker: NsqdProcess) -> Iterator[SparkSession]:
    yield spark
    for name in ("log", "sink"):
        spark.catalog.dropTempView(name)


def values(spark: SparkSession, query: str) -> list[str]:
    return sorted(row[0] for row in spark.sql(query).collect())


def test_views(sql: SparkSession, broker: NsqdProcess) -> None:
    at = address(broker)
    sql.sql(
        "CREATE TEMPORARY VIEW log USING nsq OPTIONS "
        f"(replay 'log', nsqdHttpAddresses '{at}', subscribe 'clicks,orders', valueFormat 'string')"
    )
    assert values(sql, "SELECT value FROM log WHERE topic = 'clicks'") == ["1", "2", "3"]
    assert values(sql, "SELECT value FROM log") == ["1", "2", "3", "4"]
    sql.sql(f"CREATE TEMPORARY VIEW sink (value STRING) USING nsq OPTIONS (nsqdHttpAddresses '{at}', topic 'orders')")
    sql.sql("INSERT INTO sink SELECT value FROM log WHERE value < '3'")
    assert values(sql, "SELECT value FROM log WHERE topic = 'orders'") == ["1", "2", "4"]


def test_a_view_with_declared_columns_has_just_these(sql: SparkSession, broker: NsqdProcess) -> None:
    given = f"USING nsq OPTIONS (replay 'log', nsqdHttpAddresses '{address(broker)}', topic 'clicks')"
    sql.sql(f"CREATE TEMPORARY VIEW log (position BIGINT, value BINARY) {given}")
    assert [
        (*sql.table("log").columns, bytes(row.value)) for row in sql.sql("SELECT * FROM log LIMIT 1").collect()
    ] == [("position", "value", b"1")]
    sql.sql(f"CREATE TEMPORARY VIEW sink (value STRING) {given}")
    with pytest.raises(AnalysisException, match='there is no column "value STRING"; there are value BINARY, topic'):
        sql.sql("SELECT * FROM sink").collect()


def test_a_stream_with_a_schema_that_cannot_be_fails_with_the_reason(
    sql: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    stream = sql.readStream.format("nsq").schema("value STRING").options(**options(broker, topic="clicks")).load()
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match='there is no column "value STRING"'):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(
            str(tmp_path / "out")
        ).awaitTermination()


def test_a_table_says_what_to_do_instead(sql: SparkSession, broker: NsqdProcess) -> None:
    with pytest.raises(AnalysisException, match=r"CREATE TABLE is not possible: .* use CREATE TEMPORARY VIEW"):
        sql.sql(
            f"CREATE TABLE t USING nsq OPTIONS (replay 'log', nsqdHttpAddresses '{address(broker)}', topic 'clicks')"
        )


def test_the_table_function(sql: SparkSession, broker: NsqdProcess) -> None:
    register(sql)
    at = f"nsqdHttpAddresses => '{address(broker)}'"
    text = "CAST(value AS STRING)"
    assert values(sql, f"SELECT {text} FROM nsq_log({at}, topic => 'clicks', retries => 0)") == ["1", "2", "3"]
    found = sql.sql(
        f"SELECT topic, count(*), min(position) > 0 FROM nsq_log({at}, subscribePattern => '.*') GROUP BY 1"
    )
    assert sorted(tuple(row) for row in found.collect()) == [("clicks", 3, True), ("orders", 1, True)]
    for given, said in (
        ("topick => 'clicks'", 'unknown option "topick"; did you mean "topic"?'),
        ("topic => 'clicks', columns => 'value'", "nsq_log has fixed columns"),
        ("topic => NULL", 'nsq_log: the argument "topic" is null'),
    ):
        with pytest.raises(PythonException) as caught:
            sql.sql(f"SELECT count(*) FROM nsq_log({at}, {given})").collect()
        assert said in str(caught.value)
