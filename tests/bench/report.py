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
    f"{'case':<46} {'counts':<14} {'side':<5} {'msgs/s':>11} {'+-%':>4} {'us/msg':>7} "
    f"{'cores':>6} {'load':>6} {'load max/s':>12}"
)
LEGEND = """\
msgs/s: median of the rounds. +-%: half the distance from slowest to fastest round. us/msg: CPU of the broker
a message. cores: what the broker used of them. load: share of a core that the load generator used. load
max/s: what the load generator could do with a core of its own. ratio: ours / peer; msgs/s above 1 and us/msg
below 1 are better."""


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
        )

    def line(self, side: str) -> str:
        """
        The row of one side, without the case.
        """
        return (
            f"{side:<5} {self.rate:>11,.0f} {self.spread * 100:>4.0f} {self.cost_us:>7.2f} "
            f"{self.broker_cores:>6.2f} {self.load_cores:>6.2f} {self.load_limit:>12,.0f}"
        )


# Case name -> side -> summary.
Results = dict[str, dict[str, Summary]]


def ratios(ours: Summary, peer: Summary) -> tuple[float, float]:
    """
    Ours / peer: messages a second, and CPU a message (1 where the peer's CPU was below a clock tick).
    """
    return ours.rate / peer.rate, ours.cost_us / peer.cost_us if peer.cost_us else 1.0


def lines(case: Case, sides: dict[str, Summary]) -> list[str]:
    """
    The rows of one case: one a side, and the ratio if there are two.
    """
    rows = [one.line(side) for side, one in sides.items()]
    if "peer" in sides:
        rate, cost = ratios(sides["ours"], sides["peer"])
        rows.append(f"{'ratio':<5} {rate:>11.2f} {'':>4} {cost:>7.2f}")
    heads = [f"{case.title:<46} {case.unit:<14}"] + [" " * 61] * len(rows)
    return [f"{head} {row}" for head, row in zip(heads, rows, strict=False)]


def document(about: dict[str, Any], results: Results) -> str:
    """
    Everything as JSON: ``about`` (machine, options), then per case and side the medians and each round.
    """
    cases: dict[str, Any] = {}
    for name, sides in results.items():
        cases[name] = {side: asdict(one) for side, one in sides.items()}
        if "peer" in sides:
            rate, cost = ratios(sides["ours"], sides["peer"])
            cases[name]["ratio"] = {"rate": rate, "cost_us": cost}
    return json.dumps({**about, "cases": cases}, indent=2) + "\n"
