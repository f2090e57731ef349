"""SQL: views on logs, a view that publishes, and the table function ``nsq_log``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark_nsq.sql import register

from tests.process import NsqdProcess
from tests.spark.log_stream import address, keep


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
    assert ["1", "2", "3"] == values(sql, "SELECT value FROM log WHERE topic = 'clicks'")
    assert ["1", "2", "3", "4"] == values(sql, "SELECT value FROM log")
    sql.sql(f"CREATE TEMPORARY VIEW sink (value STRING) USING nsq OPTIONS (nsqdHttpAddresses '{at}', topic 'orders')")
    sql.sql("INSERT INTO sink SELECT value FROM log WHERE value < '3'")
    assert ["1", "2", "4"] == values(sql, "SELECT value FROM log WHERE topic = 'orders'")


def test_a_table_says_what_to_do_instead(sql: SparkSession, broker: NsqdProcess) -> None:
    with pytest.raises(AnalysisException, match="CREATE TABLE is not possible: .* use CREATE TEMPORARY VIEW"):
        sql.sql(
            f"CREATE TABLE t USING nsq OPTIONS (replay 'log', nsqdHttpAddresses '{address(broker)}', topic 'clicks')"
        )


def test_the_table_function(sql: SparkSession, broker: NsqdProcess) -> None:
    register(sql)
    at = f"nsqdHttpAddresses => '{address(broker)}'"
    text = "CAST(value AS STRING)"
    assert ["1", "2", "3"] == values(sql, f"SELECT {text} FROM nsq_log({at}, topic => 'clicks', retries => 0)")
    found = sql.sql(
        f"SELECT topic, count(*), min(position) > 0 FROM nsq_log({at}, subscribePattern => '.*') GROUP BY 1"
    )
    assert [("clicks", 3, True), ("orders", 1, True)] == sorted(tuple(row) for row in found.collect())
    for given, said in (
        ("topick => 'clicks'", 'unknown option "topick"; did you mean "topic"?'),
        ("topic => 'clicks', columns => 'value'", "nsq_log has fixed columns"),
        ("topic => NULL", 'nsq_log: the argument "topic" is null'),
    ):
        with pytest.raises(PythonException) as caught:
            sql.sql(f"SELECT count(*) FROM nsq_log({at}, {given})").collect()
        assert said in str(caught.value)
