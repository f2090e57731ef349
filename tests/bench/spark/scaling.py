"""
``python -m tests.bench.spark.scaling``: rates with N executors of one core and M nsqds, beside those of a model.

The model has two figures for each work: the CPU of a row in Spark, `s`, and in the broker, `b`, both in us. A broker
uses one core at most. On machines of their own, N executor cores and M nsqds move

    rate = min(N / s, M / b)

and on K cores that all of them share

    rate = min(N / s, M / b, K / (s + b))

The figures come from the run with one executor and one nsqd: `s` is the time of a row there, as one core does all of
Spark's work. The other runs check the model. All runs are on the standalone
cluster of the tests: a master and two workers as processes on this machine.
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
    """What one number of executors and nsqds did: the time of a row and the broker's CPU of it, by work, in us."""

    executors: int
    nsqds: int
    row_us: dict[str, float]
    broker_us: dict[str, float]


def run(cluster: Cluster, given: argparse.Namespace, executors: int, nsqds: int) -> Run:
    """Submit the job to a cluster with so many executors, for so many new brokers."""
    with ExitStack() as stack:
        brokers = [stack.enter_context(running(given.nsqd, shlex.split(given.args))) for _ in range(nsqds)]
        for broker in brokers:
            broker.create(scaling_job.TOPIC)
            broker.ask("POST", f"/v2/topic/retention?topic={scaling_job.TOPIC}&time=24h")
        addresses = ",".join(f"127.0.0.1:{broker.http_port}" for broker in brokers)
        driver = cluster.submit(
            *("--conf=spark.executor.cores=1", f"--conf=spark.cores.max={executors}"),
            "--conf=spark.sql.execution.arrow.maxRecordsPerBatch=10000",
            *(scaling_job.__file__, addresses, ",".join(str(broker.pid) for broker in brokers), str(given.rows)),
        )
        driver.finish()
    lines = [json.loads(line) for line in driver.said().splitlines() if line.startswith('{"work"')]
    return Run(executors, nsqds, *(_us_a_row(given.rows, lines, of) for of in ("seconds", "broker_seconds")))


def _us_a_row(rows: int, lines: list[dict[str, Any]], of: str) -> dict[str, float]:
    """Return the median of all rounds but the first, by work."""
    found = {work: [one[of] for one in lines if one["work"] == work and one["round"]] for work in WORKS}
    if not all(found.values()):
        raise BenchError("the job printed no figures")
    return {work: median(seconds) / rows * 1e6 for work, seconds in found.items()}


def table(runs: list[Run], cores: int) -> str:
    """Return the rates of all runs beside the model's, as Markdown."""
    first = runs[0]
    costs = {work: Costs(first.row_us[work], first.broker_us[work]) for work in WORKS}
    rows = [["executors", "nsqds", "work", "rows/s", f"model, {cores} cores", "model, own machines"], ["---"] * 6]
    for one in runs:
        for work, cost in costs.items():
            expected = [cost.rate(one.executors, one.nsqds, cores), cost.rate(one.executors, one.nsqds)]
            rates = [1e6 / one.row_us[work], *expected]
            rows.append([str(one.executors), str(one.nsqds), work, *(f"{rate:,.0f}" for rate in rates)])
    lines = [f"{work}: s = {cost.spark:.2f} us, b = {cost.broker:.2f} us" for work, cost in costs.items()]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *lines])


def main(argv: list[str]) -> int:
    """Run it. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 200 B, a round (default: %(default)s)")
    given = parser.parse_args(argv)
    cores = os.cpu_count() or 1
    print(report.machine())
    with tempfile.TemporaryDirectory(prefix="nsqtw-bench-") as folder, standalone(Path(folder) / "cluster") as cluster:
        try:
            runs = [run(cluster, given, executors, nsqds) for executors in (1, 2) for nsqds in (1, 2)]
        except BenchError as error:
            print(f"scaling: {error}", file=sys.stderr)
            return 1
    print(table(runs, cores))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
