"""
``python -m tests.bench.spark``: rows of 200 B a second through the connector, and what they cost, in one session.

packs      the sink's job up to the finished request bodies, which are thrown away
publishes  the sink
one each   the sink with a message in each request, for scale; a hundredth of the rows
log        ``replay=log``: counted, and into parquet
channel    a stream from a channel, through the spool into parquet, its start and its end included, 3 s of it
           silence
archive    the stream of `nsqtw-spark archive --once`

Packing and publishing alternate. "apart": all of Spark has one core and the broker another one. "shared": both have all
cores. What arrives is counted in every round. Medians of the rounds; ±: half the distance from slowest to fastest.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark_nsq.session import local_session

from .. import report
from ..errors import BenchError
from ..server import Broker, default_executable, running
from . import cpus, sink, sources

_PROJECT = Path(__file__).resolve().parent.parent.parent.parent
_WAYS = ("apart", "shared")
_LEAST_CORES = 2


class Sample(NamedTuple):
    """One round: rows a second, and the CPU of a row, in us, in Spark with its Python and in the broker."""

    rate: float
    spark_us: float
    broker_us: float


class Bench:
    """Runs things on Spark and a broker, and keeps the figures by name."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark, self.broker = spark, broker
        self.samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def measure(self, name: str, rows: int, work: Callable[[], None], *, keep: bool = True) -> None:
        """`keep` is false while things warm up."""
        before, ours, start = self._cpu_seconds(), cpus.cpu_seconds([self.broker.pid]), time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        spark_seconds, broker_seconds = self._cpu_seconds() - before, cpus.cpu_seconds([self.broker.pid]) - ours
        if keep:
            self.samples[name].append(Sample(rows / seconds, spark_seconds / rows * 1e6, broker_seconds / rows * 1e6))

    def place(self, way: str) -> None:
        """Who may run where; see the module."""
        everything = set(range(os.cpu_count() or 1))
        apart = way == "apart"
        cpus.pin(self._sparks(), {0} if apart else everything)
        cpus.pin([self.broker.pid], {1} if apart else everything)

    def _sparks(self) -> list[int]:
        return cpus.processes(os.getpid(), without=self.broker.pid)

    def _cpu_seconds(self) -> float:
        return cpus.cpu_seconds(self._sparks())

    def table(self) -> str:
        rows = [["", "rows/s", "± %", "Spark, us of CPU a row", "broker, us of CPU a row"], ["---"] * 5]
        for name, samples in self.samples.items():
            rates = [one.rate for one in samples]
            rate = median(rates)
            spread = (max(rates) - min(rates)) / 2 / rate * 100
            costs = (median(one.spark_us for one in samples), median(one.broker_us for one in samples))
            rows.append([name, f"{rate:,.0f}", f"{spread:.0f}", *(f"{cost:.2f}" for cost in costs)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def ratio(self, way: str) -> str:
        """Of the medians of one way: of the rates, and of Spark's CPU."""
        packs, publishes = (self.samples[f"{what}, {way}"] for what in ("packs", "publishes"))
        rates = [median(one.rate for one in samples) for samples in (publishes, packs)]
        costs = [median(one.spark_us for one in samples) for samples in (packs, publishes)]
        return (
            f"publishes / packs, {way}: {rates[0] / rates[1]:.2f} of the rate; "
            f"packs / publishes in Spark's CPU: {costs[0] / costs[1]:.2f}"
        )


def write(bench: Bench, given: argparse.Namespace) -> None:
    """All that goes into NSQ."""
    rows = sink.rows_in_memory(bench.spark, given.rows)
    options = {"batchSize": str(given.batch_size)} if given.batch_size else {}
    for number in range(given.warm + given.rounds):
        for way in _WAYS:
            bench.place(way)
            topic = f"round{number}.{way}"
            for what, work in (("packs", sink.pack), ("publishes", sink.publish)):
                bench.measure(
                    f"{what}, {way}",
                    given.rows,
                    lambda: work(rows, bench.broker, topic, **options),  # noqa: B023 - called at once
                    keep=number >= given.warm,
                )
            sink.check(bench.broker, topic, given.rows)
            bench.broker.delete(topic)
    few = rows.limit(max(1, given.rows // 100)).repartition(2).cache()
    count = few.count()
    bench.measure("one each", count, lambda: sink.publish(few, bench.broker, "each", batchSize="1"))
    sink.check(bench.broker, "each", count)


def read(bench: Bench, given: argparse.Namespace, folder: Path) -> None:
    """All that comes out of it. What is read is in the log once a round more, and in the channel once."""
    rows = sink.rows_in_memory(bench.spark, given.rows)
    for number in range(given.warm + given.rounds):
        sources.prepare(bench.broker)
        sink.publish(rows, bench.broker, sources.TOPIC)
        spark, broker, count, keep = bench.spark, bench.broker, given.rows, number >= given.warm
        bench.measure("log, counted", count, lambda: sources.count_log(spark, broker, count), keep=keep)  # noqa: B023
        bench.measure("log to parquet", count, lambda: sources.log_to_parquet(spark, broker, folder), keep=keep)  # noqa: B023
        sources.check(spark, folder, "log", count)
        bench.measure("channel to parquet", count, lambda: sources.channel_to_parquet(spark, broker, folder), keep=keep)  # noqa: B023
        sources.check(spark, folder, "channel", count)
        bench.measure("archive", count, lambda: sources.archive(spark, broker, folder), keep=keep)  # noqa: B023
        sources.check(spark, folder, "archive", count)
        bench.broker.delete(sources.TOPIC)


def run(given: argparse.Namespace) -> None:
    print(report.machine())
    # The tasks load the packing source from here, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
    spark = local_session("bench", settings={"spark.driver.memory": "4g"})
    print(measured(spark, given))
    spark.stop()


def measured(spark: SparkSession, given: argparse.Namespace) -> str:
    """The table. Raises BenchError when something was miscounted."""
    spark.dataSource.register(sink.PackingSource)
    with (
        running(given.nsqd, shlex.split(given.args)) as broker,
        tempfile.TemporaryDirectory(prefix="nsqtw-bench-") as folder,
    ):
        bench = Bench(spark, broker)
        lines = []
        if given.only != "read":
            write(bench, given)
            lines += [bench.ratio(way) for way in _WAYS]
        bench.place("shared")
        if given.only != "write":
            read(bench, given, Path(folder))
        return "\n".join([bench.table(), "", *lines])


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 200 B (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--warm", type=int, default=1, help="rounds before those (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, help="the option batchSize, other than its default")
    parser.add_argument("--only", choices=("write", "read"), help="only what goes in, or what comes out")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run it. Returns the exit status: 1 when something was miscounted."""
    if (os.cpu_count() or 1) < _LEAST_CORES:
        print("bench: it takes two cores", file=sys.stderr)
        return 1
    try:
        run(arguments(argv))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
