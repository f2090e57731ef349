"""Figures of work on Spark and a broker: rates, CPU and memory of each side, and the ratios that the goals name."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from pyspark.sql import SparkSession

from ..server import Broker
from . import cpus


class Sample(NamedTuple):
    """One round: rows a second, and the CPU of a row, in us, in Spark with its Python and in the broker."""

    rate: float
    spark_us: float
    broker_us: float


class Goal(NamedTuple):
    """The least ratio of two rates, or without `against` the least rate."""

    name: str
    against: str | None
    least: float


GOALS = (
    Goal("publishes, apart", "packs, apart", 0.93),
    Goal("publishes, shared", "packs, shared", 0.6),
    Goal("log to noop", "parquet to noop", 0.5),
    Goal("log to parquet", "parquet to parquet", 0.5),
    Goal("channel to parquet", None, 250_000),
    Goal("archive", None, 200_000),
)


class Bench:
    """Runs things on Spark and a broker, and keeps the figures by name."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark, self.broker = spark, broker
        self.samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def measure(self, name: str, rows: int, work: Callable[[], float | None], *, keep: bool = True) -> None:
        """Time `work`, less the seconds it returns: those it only waited. `keep` is false while things warm up."""
        before, ours, start = self._cpu_seconds(), cpus.cpu_seconds([self.broker.pid]), time.perf_counter()
        waited = work()
        seconds = time.perf_counter() - start - (waited or 0)
        spark_seconds, broker_seconds = self._cpu_seconds() - before, cpus.cpu_seconds([self.broker.pid]) - ours
        if keep:
            self.samples[name].append(Sample(rows / seconds, spark_seconds / rows * 1e6, broker_seconds / rows * 1e6))

    def place(self, way: str) -> None:
        """Pin processes to cores: "apart" gives Spark one core and the broker another, "shared" gives both all."""
        everything = set(range(os.cpu_count() or 1))
        apart = way == "apart"
        cpus.pin(self._sparks(), {0} if apart else everything)
        cpus.pin([self.broker.pid], {1} if apart else everything)

    def table(self) -> str:
        """Return the medians of all work, as Markdown."""
        rows = [["", "rows/s", "± %", "Spark, us of CPU a row", "broker, us of CPU a row"], ["---"] * 5]
        for name, samples in self.samples.items():
            rates = [one.rate for one in samples]
            rate = median(rates)
            spread = (max(rates) - min(rates)) / 2 / rate * 100
            costs = (median(one.spark_us for one in samples), median(one.broker_us for one in samples))
            rows.append([name, f"{rate:,.0f}", f"{spread:.0f}", *(f"{cost:.2f}" for cost in costs)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def goals(self) -> list[str]:
        """Return a line for each goal whose work was measured."""
        return [self._goal(goal) for goal in GOALS if goal.name in self.samples]

    def _goal(self, goal: Goal) -> str:
        if goal.against is None:
            found, unit = self._rate(goal.name), "rows/s"
            return f"{goal.name}: {found:,.0f} of {goal.least:,.0f} {unit}: {_word(found >= goal.least)}"
        # Both took turns: the ratio of each round, so that what slows a whole round does not count.
        pairs = zip(self.samples[goal.name], self.samples[goal.against], strict=True)
        ratio = median(one.rate / other.rate for one, other in pairs)
        return f"{goal.name} / {goal.against}: {ratio:.2f} of {goal.least}: {_word(ratio >= goal.least)}"

    def _rate(self, name: str) -> float:
        return median(one.rate for one in self.samples[name])

    def _sparks(self) -> list[int]:
        return cpus.processes(os.getpid(), without=self.broker.pid)

    def _cpu_seconds(self) -> float:
        return cpus.cpu_seconds(self._sparks())


def _word(is_met: bool) -> str:
    return "met" if is_met else "below"
