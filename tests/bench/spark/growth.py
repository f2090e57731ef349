"""
``python -m tests.bench.spark.growth``: how cost and memory grow with the rows, and rates with the partitions.

    --rows 10000,100000,1000000     the sizes: published, replayed into files, streamed from a channel into files
    --partitions 1,2,4,8            of a replay to nowhere, of the largest size up to 5,000,000
    --heap 1g                       of Spark's Java, which is driver and executor
    --json FILE --png PICTURE       keep the figures with those that the file has of other sizes, draw them

Memory is the peak of Java, of all processes of Python that Spark has started, of what Java's heap holds after a
collection, and of Arrow's buffers outside of it. A larger backlog must not make it larger. Java fills its heap before
it collects, so it is made to collect every 4 seconds, and at the end of each work. The rates include that.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark_nsq.session import local_session

from .. import report
from ..errors import BenchError
from ..server import Broker, default_executable, running
from . import cpus, sink, sources
from .memory import watched

#: Enough for a rate.
_SCALE_ROWS = 5_000_000
Figures = dict[str, Any]


def grow(spark: SparkSession, broker: Broker, sizes: list[int], folder: Path) -> list[Figures]:
    """Move each number of rows in, out of the log, and out of a channel."""
    found = []
    for rows in sizes:
        sources.prepare(broker)
        frame = sink.made_rows(spark, rows)
        sum_of_bodies = sources.bodies(frame)
        works: dict[str, Callable[[], float | None]] = {
            "sink": partial(sink.publish, frame, broker, sources.TOPIC),
            "replay": partial(sources.log_to_parquet, spark, broker, folder),
            "channel": partial(sources.drain_channel, spark, broker, folder, rows),
        }
        for name, work in works.items():
            figures = {"work": name, "rows": rows} | _measured(spark, broker, rows, work)
            if name != "sink":
                sources.check_bodies(spark, folder, "log" if name == "replay" else name, sum_of_bodies)
            found.append(figures)
            print(json.dumps(figures), flush=True)
        broker.delete(sources.TOPIC)
    return found


def scale(spark: SparkSession, broker: Broker, rows: int, partitions: list[int]) -> list[Figures]:
    """Replay the same rows to nowhere with each number of partitions."""
    sources.prepare(broker)
    sink.publish(sink.made_rows(spark, rows), broker, sources.TOPIC)
    found = []
    for count in partitions:
        work = partial(sources.log_to_noop, spark, broker, numPartitions=str(count))
        work()
        found.append({"work": "partitions", "partitions": count} | _measured(spark, broker, rows, work))
        print(json.dumps(found[-1]), flush=True)
    broker.delete(sources.TOPIC)
    return found


def _measured(spark: SparkSession, broker: Broker, rows: int, work: Callable[[], float | None]) -> Figures:
    sparks = partial(cpus.processes, os.getpid(), without=broker.pid)
    spark_before, broker_before = cpus.cpu_seconds(sparks()), cpus.cpu_seconds([broker.pid])
    start = time.perf_counter()
    with watched(spark, broker) as peaks:
        waited = work()
        seconds = time.perf_counter() - start - (waited or 0)
    broker_seconds = cpus.cpu_seconds([broker.pid]) - broker_before
    return {
        "seconds": round(seconds, 2),
        "rows_per_second": round(rows / seconds),
        "spark_us": round((cpus.cpu_seconds(sparks()) - spark_before) / rows * 1e6, 2),
        "broker_us": round(broker_seconds / rows * 1e6, 2),
        "broker_core": round(broker_seconds / seconds, 2),
        "java_mb": round(peaks.java),
        "java_live_mb": round(peaks.live),
        "arrow_mb": round(peaks.arrow),
        "python_mb": round(peaks.python),
    }


def draw(figures: list[Figures], about: str, picture: Path) -> None:
    """Draw cost and memory against rows, and the rate of a replay against its partitions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (cost, memory, scaling) = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for work in ("sink", "replay", "channel"):
        some = [one for one in figures if one["work"] == work]
        rows = [one["rows"] for one in some]
        cost.plot(rows, [one["seconds"] / one["rows"] * 1e6 for one in some], "o-", label=work)
        memory.plot(rows, [one["python_mb"] for one in some], "o-", label=f"{work}, Python")
        memory.plot(rows, [one["java_mb"] for one in some], "o--", label=f"{work}, Java")
        memory.plot(rows, [one["java_live_mb"] for one in some], "o:", label=f"{work}, Java's heap after a collection")
    some = [one for one in figures if one["work"] == "partitions"]
    scaling.plot(
        [one["partitions"] for one in some], [one["rows_per_second"] for one in some], "o-", label="rows a second"
    )
    cores = scaling.twinx()
    cores.plot([one["partitions"] for one in some], [one["broker_core"] for one in some], "s:", color="gray")
    cores.set(ylabel="cores of the broker", ylim=(0, 1.05))
    cost.set(title="time of a row", xlabel="rows", ylabel="us", xscale="log", yscale="log")
    memory.set(title="peak of memory", xlabel="rows", ylabel="MB", xscale="log", ylim=0)
    scaling.set(title="replay", xlabel="partitions", ylabel="rows a second", ylim=0)
    scaling.set_xscale("log", base=2)
    scaling.set_xticks([one["partitions"] for one in some], [str(one["partitions"]) for one in some])
    for graph in (cost, memory, scaling):
        graph.grid(alpha=0.3)
        graph.legend(fontsize="x-small")
    figure.supxlabel(about, fontsize="x-small")
    figure.savefig(picture, dpi=110)


def merged(file: Path, figures: list[Figures]) -> list[Figures]:
    """Return the figures with those of other sizes that the file has."""
    before = json.loads(file.read_text())["figures"] if file.exists() else []
    by_size = {(one["work"], one.get("rows"), one.get("partitions")): one for one in before + figures}
    return sorted(by_size.values(), key=lambda one: (one["work"], one.get("rows", 0), one.get("partitions", 0)))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--rows", type=_numbers, default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--partitions", type=_numbers, default=[1, 2, 4, 8])
    parser.add_argument("--folder", type=Path, help="where files go (default: a temporary folder)")
    parser.add_argument("--heap", default="1g", help="Java's largest heap (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="PICTURE")
    return parser.parse_args(argv)


def measured(spark: SparkSession, given: argparse.Namespace) -> list[Figures]:
    """Return all figures. Raises BenchError when something was miscounted."""
    with (
        running(given.nsqd, shlex.split(given.args)) as broker,
        tempfile.TemporaryDirectory(prefix="nsqtw-bench-", dir=given.folder) as folder,
    ):
        warm = sink.made_rows(spark, 1000)
        sink.publish(warm, broker, "warm")
        return grow(spark, broker, given.rows, Path(folder)) + scale(
            spark, broker, min(given.rows[-1], _SCALE_ROWS), given.partitions
        )


def main(argv: list[str]) -> int:
    """Run it. Returns the exit status: 1 when something was miscounted."""
    given = arguments(argv)
    print(report.machine())
    spark = local_session("growth", settings={"spark.driver.memory": given.heap})
    try:
        figures = measured(spark, given)
    except BenchError as error:
        print(f"growth: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    if given.json:
        figures = merged(given.json, figures)
        given.json.write_text(json.dumps({"about": report.machine(), "figures": figures}, indent=2) + "\n")
    if given.png:
        draw(figures, report.machine(), given.png)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
