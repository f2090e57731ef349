"""
``python -m tests.bench.spark``: rows of 200 B a second through the connector, and what they cost, in one session.

packs               the sink's job up to the finished request bodies, which are thrown away
bare                the same, and each body by a bare socket: the least that a client costs
publishes           the sink
one each            the sink with a message in each request, for scale; a hundredth of the rows
gnsq, http.client   ``foreachPartition`` with a client and 1,000 rows a request, the alternative to the sink
log                 ``replay=log``: counted, to nowhere (noop), and into parquet
parquet             the same rows read from files of parquet, to nowhere, and into parquet
channel             a stream from a channel, through the spool into parquet, its start and its end included, less the
                    silence that tells its end
archive             the job ``nsqtw-spark archive --once``: its stream, its files and its commits

The works of a round alternate. "apart": all of Spark has one core and the broker another one. "shared": both have all
cores. What arrives is counted in every round. Medians of the rounds; ±: half the distance from slowest to fastest.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark_nsq.session import local_session

from .. import report
from ..errors import BenchError
from ..server import default_executable, running
from . import alternatives, sink, sources
from .measure import Bench

_PROJECT = Path(__file__).resolve().parent.parent.parent.parent
_WAYS = ("apart", "shared")
_LEAST_CORES = 2


def write(bench: Bench, given: argparse.Namespace) -> None:
    """Measure all that goes into NSQ."""
    rows = sink.rows_in_memory(bench.spark, given.rows)
    options = {"batchSize": str(given.batch_size)} if given.batch_size else {}
    works: dict[str, Callable[..., None]] = {
        "packs": lambda rows, broker, topic: sink.pack(rows, broker, topic, **options),
        "bare": lambda rows, broker, topic: sink.send_bare(rows, broker, topic, **options),
        "publishes": lambda rows, broker, topic: sink.publish(rows, broker, topic, **options),
    }
    others: dict[str, Callable[..., None]] = {
        "gnsq": alternatives.publish_with_gnsq,
        "http.client": alternatives.publish_with_http,
    }
    for number in range(given.warm + given.rounds):
        for way in _WAYS:
            bench.place(way)
            for what, work in (works | (others if way == "shared" else {})).items():
                topic = f"round{number}.{what}.{way}"
                name = f"{what}, {way}"
                bench.measure(name, given.rows, partial(work, rows, bench.broker, topic), keep=number >= given.warm)
                if what != "packs":
                    sink.check(bench.broker, topic, given.rows)
                    bench.broker.delete(topic)
    few = rows.limit(max(1, given.rows // 100)).repartition(2).cache()
    count = few.count()
    bench.measure("one each", count, partial(sink.publish, few, bench.broker, "each", batchSize="1"))
    sink.check(bench.broker, "each", count)


def read(bench: Bench, given: argparse.Namespace, folder: Path) -> None:
    """Measure all that comes out of it. The rows are in the log once a round more, and in the channel once."""
    rows = sink.rows_in_memory(bench.spark, given.rows)
    spark, broker, count = bench.spark, bench.broker, given.rows
    works: dict[str, Callable[[], float | None]] = {
        "log, counted": partial(sources.count_log, spark, broker, count),
        "log to noop": partial(sources.log_to_noop, spark, broker),
        "log to parquet": partial(sources.log_to_parquet, spark, broker, folder),
        "parquet to noop": partial(alternatives.read_parquet, spark, folder / "log"),
        "parquet to parquet": partial(alternatives.copy_parquet, spark, folder / "log", folder / "copy"),
        "channel to parquet": partial(sources.channel_to_parquet, spark, broker, folder),
        "archive": partial(sources.archive, spark, broker, folder),
    }
    for number in range(given.warm + given.rounds):
        sources.prepare(broker)
        sink.publish(rows, broker, sources.TOPIC)
        for name, work in works.items():
            bench.measure(name, count, work, keep=number >= given.warm)
        sources.check(spark, folder, "log", count)
        sources.check(spark, folder, "channel", count)
        sources.check(spark, folder, "archive", count)
        broker.delete(sources.TOPIC)


def run(given: argparse.Namespace) -> None:
    print(report.machine())
    # The tasks load the packing source from here, too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
    more = dict(one.split("=", 1) for one in given.conf)
    spark = local_session("bench", settings={"spark.driver.memory": "4g"} | more)
    print(measured(spark, given))
    spark.stop()


def measured(spark: SparkSession, given: argparse.Namespace) -> str:
    """Return the table and the goals. Raises BenchError when something was miscounted."""
    # Spark looks for sources in the session that was active last, which createDataFrame makes this one.
    spark.createDataFrame([(1,)], "number INT")
    spark.dataSource.register(sink.PackingSource)
    spark.dataSource.register(sink.BareSource)
    with (
        running(given.nsqd, shlex.split(given.args)) as broker,
        tempfile.TemporaryDirectory(prefix="nsqtw-bench-") as folder,
    ):
        bench = Bench(spark, broker)
        if given.only != "read":
            write(bench, given)
        bench.place("shared")
        if given.only != "write":
            read(bench, given, Path(folder))
        return "\n".join([bench.table(), "", *bench.goals()])


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
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
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
