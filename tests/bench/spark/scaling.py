"""
``python -m tests.bench.spark.scaling``: rates with N executors of one core and M nsqds, beside those of a model.

The model has two figures for each work: the CPU of a row in Spark, `s`, and in the broker, `b`, both in us. A broker
uses one core at most. On machines of their own, N executor cores and M nsqds move

    rate = min(N / s, M / b)

and on K cores that all of them share

    rate = min(N / s, M / b, K / (s + b))

The figures come from the first run, with one executor and one nsqd. The other runs check what the model assumes: that
a row takes the same CPU in executors (Java and Python) and in nsqds, however many there are, and that each nsqd has
an even share of the rows ("most": the largest share, 1 if all are even). Each executor has ROWS rows. All runs are on
the standalone cluster of the tests: a master and two workers as processes on this machine. As they share its cores,
rates cannot grow with N and M. An executor of one core can use two, because its Java and its Python work at the same
time.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.spark.cluster import Cluster, standalone

from .. import report
from ..errors import BenchError
from ..server import default_executable, running
from . import scaling_job

WORKS = ("sink", "replay")


class Costs(NamedTuple):
    """The CPU of a row, in us."""

    spark: float
    broker: float

    def rate(self, executors: int, nsqds: int, cores: int | None = None) -> float:
        """Return the rows a second that the model expects; without `cores`, on machines of their own."""
        least = min(executors / self.spark, nsqds / self.broker)
        shared = cores / (self.spark + self.broker) if cores is not None else least
        return min(least, shared) * 1e6


class Run(NamedTuple):
    """What a work did with one number of executors and nsqds.

    `most`: the rows of the nsqd that has most, as a part of an even share.
    """

    executors: int
    nsqds: int
    work: str
    costs: Costs
    rate: float
    most: float


def run(cluster: Cluster, given: argparse.Namespace, executors: int, nsqds: int) -> list[Run]:
    """Submit the job to a cluster with so many executors, for so many new brokers."""
    # Each executor gets the same number of rows, so that what its Java costs at its start counts the same.
    rows = given.rows * executors
    with ExitStack() as stack:
        brokers = [stack.enter_context(running(given.nsqd, shlex.split(given.args))) for _ in range(nsqds)]
        for broker in brokers:
            broker.create(scaling_job.TOPIC)
            broker.ask("POST", f"/v2/topic/retention?topic={scaling_job.TOPIC}&time=24h")
        addresses = ",".join(f"127.0.0.1:{broker.http_port}" for broker in brokers)
        driver = cluster.submit(
            *("--conf=spark.executor.cores=1", f"--conf=spark.cores.max={executors}"),
            "--conf=spark.executor.extraJavaOptions=-XX:+UseSerialGC",
            "--conf=spark.sql.execution.arrow.maxRecordsPerBatch=10000",
            *(scaling_job.__file__, addresses, ",".join(str(broker.pid) for broker in brokers), str(rows)),
        )
        driver.finish()
        shares = [broker.depths(scaling_job.TOPIC).message_count for broker in brokers]
    lines = [json.loads(line) for line in driver.said().splitlines() if line.startswith('{"work"')]
    most = max(shares) / sum(shares) * nsqds
    return [_run(executors, nsqds, work, most, rows, lines) for work in WORKS]


def _run(executors: int, nsqds: int, work: str, most: float, rows: int, lines: list[dict[str, Any]]) -> Run:
    """Return the medians of all rounds but the first."""
    kept = [one for one in lines if one["work"] == work and one["round"]]
    if not kept:
        raise BenchError("the job printed no figures")
    # The brokers have the same number of rows: `most` says how nearly.
    costs = Costs(*(median(values) / rows * 1e6 for values in zip(*map(_seconds, kept), strict=True)))
    return Run(executors, nsqds, work, costs, rows / median(one["seconds"] for one in kept), most)


def _seconds(one: dict[str, Any]) -> tuple[float, float]:
    return one["spark_seconds"], sum(one["broker_seconds"])


def table(runs: list[Run], cores: int) -> str:
    """Return the costs and rates of all runs beside those of the model, as Markdown."""
    head = ["executors", "nsqds", "work", "s, us", "b, us", "most of an nsqd", "rows/s", f"model, {cores} cores"]
    rows = [[*head, "model, own machines"], ["---"] * 9]
    first = {one.work: one.costs for one in reversed(runs)}
    for one in runs:
        model = first[one.work]
        rates = [one.rate, *(model.rate(one.executors, one.nsqds, k) for k in (cores, None))]
        figures = [*(f"{cost:.2f}" for cost in (*one.costs, one.most)), *(f"{rate:,.0f}" for rate in rates)]
        rows.append([str(one.executors), str(one.nsqds), one.work, *figures])
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *(_deviation(runs, work) for work in WORKS)])


def _deviation(runs: list[Run], work: str) -> str:
    """Return how far the costs of all runs are from those of the first one."""
    first, *others = [one.costs for one in runs if one.work == work]
    spark, broker = (
        ", ".join(f"{other / one - 1:+.0%}" for other in each)
        for one, each in zip(first, zip(*others, strict=True), strict=True)
    )
    return f"{work}: s = {first.spark:.2f} us, then {spark}; b = {first.broker:.2f} us, then {broker}"


def _sizes(text: str) -> list[tuple[int, int]]:
    pairs = [one.split("x") for one in text.split(",")]
    return [(int(executors), int(nsqds)) for executors, nsqds in pairs]


def main(argv: list[str]) -> int:
    """Run it. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 200 B for each executor, a round")
    parser.add_argument(
        "--sizes", type=_sizes, default=_sizes("1x1,1x2,2x1,2x2"), help="executors x nsqds (default: 1x1,1x2,2x1,2x2)"
    )
    given = parser.parse_args(argv)
    cores = os.cpu_count() or 1
    print(report.machine())
    with tempfile.TemporaryDirectory(prefix="nsqtw-bench-") as folder, standalone(Path(folder) / "cluster") as cluster:
        try:
            runs = [one for executors, nsqds in given.sizes for one in run(cluster, given, executors, nsqds)]
        except BenchError as error:
            print(f"scaling: {error}", file=sys.stderr)
            return 1
    print(table(runs, cores))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
