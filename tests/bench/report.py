"""
The machine, the table and the JSON document of a benchmark run.
"""

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .cases import Case, Figure

HEADER = (
    f"{'case':<46} {'counts':<14} {'side':<8} {'msgs/s':>11} {'+-%':>4} {'us/msg':>7} "
    f"{'cores':>6} {'load':>6} {'load max/s':>12}"
)
LEGEND = """\
msgs/s: median of the rounds. +-%: half the distance from slowest to fastest round. us/msg: CPU of the broker
a message. cores: what the broker used of them. load: share of a core that the load generator used. load
max/s: what the load generator could do with a core of its own. p50, p99: of the time from producer to
consumer. ratio: ours to that side, medians; above 1 is better for rates, and for latencies, which are divided
the other way round; below 1 is better for us/msg. bar: the ratio we want to have; "below" where we have not."""


def machine() -> str:
    """
    One line: cores, CPU model, kernel, Python and how busy the machine is.
    """
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = found[1] if found else platform.machine()
    return (
        f"{os.cpu_count()} cores, {model}, Linux {platform.release()}, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.2f}"
    )


@dataclass(frozen=True)
class Summary:
    """
    Medians over the rounds of one case on one side, and all rounds.
    """

    figures: tuple[Figure, ...]
    rate: float
    spread: float
    cost_us: float
    broker_cores: float
    load_cores: float
    load_limit: float
    p50_us: float = 0.0
    p99_us: float = 0.0

    @classmethod
    def of(cls, figures: Sequence[Figure]) -> "Summary":
        rates = [one.rate for one in figures]
        return cls(
            tuple(figures),
            median(rates),
            (max(rates) - min(rates)) / 2 / median(rates),
            median(one.cost_us for one in figures),
            median(one.broker_cores for one in figures),
            median(one.load_cores for one in figures),
            median(one.load_limit for one in figures),
            median(one.p50_us for one in figures),
            median(one.p99_us for one in figures),
        )

    def line(self, side: str) -> str:
        """
        The row of one side, without the case.
        """
        row = (
            f"{side:<8} {self.rate:>11,.0f} {self.spread * 100:>4.0f} {self.cost_us:>7.2f} "
            f"{self.broker_cores:>6.2f} {self.load_cores:>6.2f} {self.load_limit:>12,.0f}"
        )
        return f"{row}  p50 {self.p50_us:,.0f} us, p99 {self.p99_us:,.0f} us" if self.p50_us else row


# Case name -> side -> summary.
Results = dict[str, dict[str, Summary]]


@dataclass(frozen=True)
class Ratio:
    """
    Ours beside another side, of medians. ``rate`` and the latencies are better above 1, ``cost_us`` below 1.
    """

    rate: float
    cost_us: float
    p50: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, ours: Summary, other: Summary) -> "Ratio":
        # Costs below a clock tick are the same.
        cost = ours.cost_us / other.cost_us if other.cost_us else 1.0
        if not ours.p50_us:
            return cls(ours.rate / other.rate, cost)
        return cls(ours.rate / other.rate, cost, other.p50_us / ours.p50_us, other.p99_us / ours.p99_us)

    def reaches(self, case: Case, side: str) -> bool | None:
        """
        Whether this is what we want of a case; None where nothing is.
        """
        bar, cost = (wanted.of(side) if wanted else None for wanted in (case.bar, case.cost))
        if bar is None and cost is None:
            return None
        reached = [self.rate] if self.p50 is None or self.p99 is None else [self.p50, self.p99]
        return (bar is None or min(reached) >= bar) and (cost is None or self.cost_us <= cost)

    def line(self, case: Case, side: str) -> str:
        """
        The row of a ratio, without the case.
        """
        row = f"{'ratio':<8} {self.rate:>11.2f} {'':>4} {self.cost_us:>7.2f}  to {side}"
        if self.p50 is not None:
            row += f", p50 {self.p50:.2f}, p99 {self.p99:.2f}"
        reached = self.reaches(case, side)
        if reached is None:
            return row
        wanted = [f"{case.bar.of(side)}"] if case.bar else []
        wanted += [f"CPU {case.cost.of(side)}"] if case.cost else []
        return f"{row}; bar {', '.join(wanted)}{'' if reached else ': below'}"


def lines(case: Case, sides: dict[str, Summary]) -> list[str]:
    """
    The rows of one case: one a side, and the ratio to each of the others.
    """
    ours, *others = sides
    rows = [one.line(side) for side, one in sides.items()]
    rows += [Ratio.of(sides[ours], sides[side]).line(case, side) for side in others]
    heads = [f"{case.title:<46} {case.unit:<14}"] + [" " * 61] * len(rows)
    return [f"{head} {row}" for head, row in zip(heads, rows, strict=False)]


def document(about: dict[str, Any], results: Results) -> str:
    """
    Everything as JSON: ``about`` (machine, options), then per case and side the medians and each round.
    """
    cases: dict[str, Any] = {}
    for name, sides in results.items():
        ours, *others = sides
        cases[name] = {side: asdict(one) for side, one in sides.items()}
        cases[name]["ratio"] = {side: asdict(Ratio.of(sides[ours], sides[side])) for side in others}
    return json.dumps({**about, "cases": cases}, indent=2) + "\n"
