"""What a user has without the connector: ``foreachPartition`` with a client of NSQ's, and files of Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..errors import WrongCount
from ..server import Broker

BATCH = 1000


def publish_with_gnsq(rows: DataFrame, broker: Broker, topic: str) -> None:
    """A producer of gnsq in each task, and an MPUB for each 1,000 rows."""
    rows.foreachPartition(partial(_with_gnsq, f"127.0.0.1:{broker.tcp_port}", topic))


def publish_with_http(rows: DataFrame, broker: Broker, topic: str) -> None:
    """A connection of http.client in each task, and a request for each 1,000 rows."""
    rows.foreachPartition(partial(_with_http, broker.http_port, topic))


def _with_gnsq(address: str, topic: str, rows: Iterable[Any]) -> None:
    from gnsq import Producer

    producer = Producer([address])
    producer.start()
    for messages in _messages(rows):
        producer.multipublish(topic, messages)
    producer.close()
    producer.join()


def _with_http(port: int, topic: str, rows: Iterable[Any]) -> None:
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", port)
    for messages in _messages(rows):
        sized = b"".join(len(one).to_bytes(4, "big") + one for one in messages)
        connection.request("POST", f"/mpub?binary=true&topic={topic}", len(messages).to_bytes(4, "big") + sized)
        answer = connection.getresponse()
        if answer.read() != b"OK":
            raise WrongCount(f"{topic}: a request was answered with {answer.status}")
    connection.close()


def _messages(rows: Iterable[Any]) -> Iterator[list[bytes]]:
    left = iter(rows)
    while some := [row.value.encode() for row in islice(left, BATCH)]:
        yield some


def read_parquet(spark: SparkSession, folder: Path) -> None:
    """All columns of the files, which are thrown away."""
    spark.read.parquet(str(folder)).write.format("noop").mode("overwrite").save()


def copy_parquet(spark: SparkSession, folder: Path, target: Path) -> None:
    """All columns of the files into other files."""
    spark.read.parquet(str(folder)).write.mode("overwrite").parquet(str(target))
