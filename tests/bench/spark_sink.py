"""
``python -m tests.bench.spark_sink``: rows a second through the sink, beside the same Spark job that only packs.

packs     the job up to the finished request bodies, which are thrown away
publishes the sink
one each  a message in each request, for scale; of fewer rows

The first two alternate, several rounds in one session; their ratio is of the medians. Counts are checked in the broker.
"""

import argparse
import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark_nsq.commits import NsqCommit
from pyspark_nsq.datasource import NsqDataSource
from pyspark_nsq.session import local_session
from pyspark_nsq.writer import NsqBatchWriter, requests_of

from . import report
from .server import Broker, cpu_seconds, default_executable, running

_BODY_BYTES = 200
_PROJECT = Path(__file__).resolve().parent.parent.parent


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
            rows, body_bytes, requests = rows + request.rows, body_bytes + len(request.body), requests + 1
        return NsqCommit(0, 0, rows, requests, 0, body_bytes)


def _session() -> SparkSession:
    # The tasks load this module, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
    spark = local_session("bench of the sink", settings={"spark.driver.memory": "4g"})
    spark.dataSource.register(PackingSource)
    return spark


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """Different rows of 200 bytes, in memory before the first round."""
    # The length of an md5 in hex is 32.
    value = f"substring(repeat(md5(cast(id AS string)), {_BODY_BYTES // 32 + 1}), 1, {_BODY_BYTES}) AS value"
    rows = spark.range(0, count, numPartitions=2).selectExpr(value).cache()
    rows.count()
    return rows


def _write(rows: DataFrame, source: str, broker: Broker, topic: str, options: dict[str, str]) -> None:
    settings = {"nsqdHttpAddresses": f"127.0.0.1:{broker.http_port}", "topic": topic} | options
    rows.write.format(source).mode("append").options(**settings).save()


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _check(broker: Broker, topic: str, expected: int) -> None:
    found = broker.depths(topic).message_count
    if found != expected:
        raise SystemExit(f"{topic}: {expected:,} rows were written, {found:,} messages are in the broker")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_sink", description=__doc__)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 200 B (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-size", default="1000", help="the option batchSize (default: %(default)s)")
    return parser.parse_args()


def run(given: argparse.Namespace) -> None:
    print(report.machine())
    spark = _session()
    rows = _rows(spark, given.rows)
    options = {"batchSize": given.batch_size}
    seconds: dict[str, list[float]] = {"nsq_packing": [], "nsq": []}
    costs = []
    with running(given.nsqd, shlex.split(given.args)) as broker:
        for number in range(given.rounds + 1):
            for source, taken in seconds.items():
                topic = f"round{number}"
                before = cpu_seconds(broker.pid)
                one = _timed(lambda: _write(rows, source, broker, topic, options))  # noqa: B023 - called at once
                if source == "nsq":
                    _check(broker, topic, given.rows)
                    costs.append((cpu_seconds(broker.pid) - before) / given.rows * 1e6)
                    broker.ask("POST", f"/topic/delete?topic={topic}")
                if number:  # the first round warms up
                    taken.append(one)
        few = max(1, given.rows // 100)
        each = _timed(
            lambda: _write(rows.limit(few).repartition(2), "nsq", broker, "each", options | {"batchSize": "1"})
        )
        _check(broker, "each", few)
    packs, publishes = (given.rows / median(taken) for taken in seconds.values())
    for name, source, rate in (("packs", "nsq_packing", packs), ("publishes", "nsq", publishes)):
        slowest, fastest = (given.rows / extreme(seconds[source]) for extreme in (max, min))
        print(f"{name:<10} {rate:>11,.0f} rows/s, {slowest:,.0f} to {fastest:,.0f}")
    print(f"{'one each':<10} {few / each:>11,.0f} rows/s ({few:,} rows)")
    print(f"{'ratio':<10} {publishes / packs:>11.2f} publishes / packs; broker {median(costs):.2f} us of CPU a row")
    spark.stop()


if __name__ == "__main__":
    run(_arguments())
