"""Into NSQ: the sink, and beside it the same job of Spark's that only packs, or that sends over a bare socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark_nsq.datasource import NsqDataSource
from pyspark_nsq.sink.commits import NsqCommit
from pyspark_nsq.sink.writer import NsqBatchWriter, requests_of

from ..errors import WrongCount
from ..server import Broker
from .bare import BareClient

BODY_BYTES = 200


class PackingSource(NsqDataSource):
    """The sink without its network."""

    @classmethod
    def name(cls) -> str:
        return "nsq_packing"

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        return PackingWriter(*self._checked(schema))


class PackingWriter(NsqBatchWriter):
    def write(self, iterator: Iterator[Any]) -> NsqCommit:
        rows = body_bytes = requests = 0
        for request in requests_of(self._options, self._columns, iterator):
            rows, body_bytes, requests = rows + request.rows, body_bytes + request.body_bytes, requests + 1
        return NsqCommit(partition=0, attempt=0, rows=rows, requests=requests, body_bytes=body_bytes)


class BareSource(NsqDataSource):
    """The sink with a bare socket instead of its publisher: no HTTP client, no thread of a reactor, no retries."""

    @classmethod
    def name(cls) -> str:
        return "nsq_bare"

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        return BareWriter(*self._checked(schema))


class BareWriter(NsqBatchWriter):
    def write(self, iterator: Iterator[Any]) -> NsqCommit:
        with BareClient(int(self._options.addresses[0].rpartition(":")[2])) as client:
            for request in requests_of(self._options, self._columns, iterator):
                client.publish(request)
        return NsqCommit(partition=0, attempt=0)


def rows_in_memory(spark: SparkSession, count: int) -> DataFrame:
    """Different rows of 200 bytes, in memory when this returns."""
    rows = made_rows(spark, count).cache()
    rows.count()
    return rows


def made_rows(spark: SparkSession, count: int) -> DataFrame:
    """Different rows of 200 bytes, made when they are needed."""
    # The length of an md5 in hex is 32.
    value = f"substring(repeat(md5(cast(id AS string)), {BODY_BYTES // 32 + 1}), 1, {BODY_BYTES}) AS value"
    return spark.range(0, count, numPartitions=2).selectExpr(value)


def pack(rows: DataFrame, broker: Broker, topic: str, **options: str) -> None:
    """Up to the finished bodies of the requests, which are thrown away."""
    _write(rows, "nsq_packing", broker, topic, options)


def send_bare(rows: DataFrame, broker: Broker, topic: str, **options: str) -> None:
    """The finished bodies over a bare socket."""
    _write(rows, "nsq_bare", broker, topic, options)


def publish(rows: DataFrame, broker: Broker, topic: str, **options: str) -> None:
    """The sink."""
    _write(rows, "nsq", broker, topic, options)


def _write(rows: DataFrame, source: str, broker: Broker, topic: str, options: dict[str, str]) -> None:
    settings = {"nsqdHttpAddresses": f"127.0.0.1:{broker.http_port}", "topic": topic} | options
    rows.write.format(source).mode("append").options(**settings).save()


def check(broker: Broker, topic: str, expected: int) -> None:
    """Raises WrongCount when the broker has another number of messages."""
    found = broker.depths(topic).message_count
    if found != expected:
        raise WrongCount(f"{topic}: {expected:,} rows were written, {found:,} messages are in the broker")
