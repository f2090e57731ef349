"""Spark's limits of Arrow batches, ``spark.sql.execution.arrow.*``: no row is lost or repeated, whatever they are."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tests.process import NsqdProcess
from tests.wire import HOST

MIB = 1024 * 1024
RECORDS, BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"


@contextmanager
def limits(spark: SparkSession, records: str, most_bytes: str) -> Iterator[None]:
    spark.conf.set(RECORDS, records)
    spark.conf.set(BYTES, most_bytes)
    try:
        yield
    finally:
        spark.conf.unset(RECORDS)
        spark.conf.unset(BYTES)


@pytest.mark.parametrize(
    ("records", "most_bytes", "rows", "size"),
    [
        pytest.param("1", "1", 300, 20, id="a row in each batch"),
        pytest.param("7", "64MB", 1000, 20, id="small batches"),
        pytest.param("1000000", "1GB", 20_000, 20, id="one batch"),
        pytest.param("1000000", "1GB", 48, MIB, id="messages of 1 MiB in one batch"),
        pytest.param("10000", "1KB", 20, MIB, id="a limit below one message"),
    ],
)
def test_every_row_arrives_once(
    spark: SparkSession, real_nsqd: NsqdProcess, records: str, most_bytes: str, rows: int, size: int
) -> None:
    real_nsqd.create("t", "c")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    http = f"{HOST}:{real_nsqd.http_port}"
    padded = spark.range(rows, numPartitions=2).selectExpr(f"rpad(cast(id AS string), {size}, '.') AS value")
    sent = Counter(hashlib.sha256(f"{number:.<{size}}".encode()).hexdigest() for number in range(rows))
    with limits(spark, records, most_bytes):
        padded.write.format("nsq").mode("append").options(nsqdHttpAddresses=http, topic="t").save()
        for options in (
            {"replay": "log", "nsqdHttpAddresses": http, "topic": "t"},
            {"nsqdTcpAddresses": f"{HOST}:{real_nsqd.tcp_port}", "topic": "t", "channel": "c"},
        ):
            frame = spark.read.format("nsq").options(**options).load().selectExpr("sha2(value, 256) AS digest")
            assert Counter(row.digest for row in frame.collect()) == sent
