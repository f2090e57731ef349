"""
``python -m tests.bench.sweep --json FILE``: rates against the size of a message and the number of channels.
``python -m tests.bench.sweep --draw FILE --png PICTURE`` draws them; only that needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from . import plan, report
from .errors import BenchError
from .load import carry_out
from .plan import Consuming, Plan
from .server import Broker, default_executable
from .sides import Side, started

SIZES = (16, 64, 200, 1024, 4096, 16_384, 65_536)
CHANNELS = (1, 2, 4, 8, 16)
_BATCH_BYTES = 64 * 1024
_IN_MEMORY = "--mem-queue-size=1000000"


@dataclass(frozen=True)
class Line:
    """What is drawn: a title, the values along the axis, and a measurement of one of them."""

    title: str
    axis: str
    unit: str
    values: tuple[int, ...]
    measure: Callable[[Broker, int, float], float]


def _publish(broker: Broker, body_bytes: int, seconds: float) -> float:
    topic = "sweep"
    broker.create(topic, ("ch1",))
    batch = max(1, min(plan.MPUB_MESSAGES, _BATCH_BYTES // body_bytes))
    publishing = replace(plan.mpub(broker.tcp_port, topic, 2, batch, body_bytes), seconds=seconds)
    tally = carry_out(Plan(broker.pid, publishing))
    broker.settle(topic, tally.published, left=tally.published)
    return tally.published / tally.seconds


def _fan_out(broker: Broker, channels: int, seconds: float) -> float:
    topic = "sweep"
    names = tuple(f"ch{number}" for number in range(channels))
    broker.create(topic, names)
    publishing = replace(plan.mpub(broker.tcp_port, topic, 2), seconds=seconds)
    consuming = tuple(Consuming(broker.tcp_port, topic, name) for name in names)
    tally = carry_out(Plan(broker.pid, publishing, consuming, keep_ids=False))
    broker.settle(topic, tally.published, left=0)
    return tally.delivered / tally.seconds


LINES = {
    "size": Line("MPUB, 2 connections", "bytes a message", "messages a second", SIZES, _publish),
    "channels": Line("publish and consume at once", "channels", "deliveries a second", CHANNELS, _fan_out),
}


def sweep(sides: list[Side], seconds: float, rounds: int) -> dict[str, Any]:
    """Line -> side -> value -> rates of all rounds. The sides take turns. `BenchError` when one fails."""
    found: dict[str, Any] = {
        name: {side.name: {str(value): [] for value in line.values} for side in sides} for name, line in LINES.items()
    }
    for name, line in LINES.items():
        for value in line.values:
            for _ in range(rounds):
                for side in sides:
                    with started(side) as broker:
                        found[name][side.name][str(value)].append(line.measure(broker, value, seconds))
            told = ", ".join(f"{side.name} {median(found[name][side.name][str(value)]):,.0f}" for side in sides)
            print(f"{line.title}, {value:,} {line.axis}: {told} {line.unit}", flush=True)
    return found


def draw(found: dict[str, Any], about: str, picture: Path) -> None:
    """A PNG with a graph for each line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, graphs = pyplot.subplots(1, len(LINES), figsize=(11, 4.2), layout="constrained")
    for graph, (name, line) in zip(graphs, LINES.items(), strict=True):
        for side, rates in found[name].items():
            graph.plot([int(value) for value in rates], [median(some) for some in rates.values()], "o-", label=side)
        graph.set_xscale("log", base=2)
        graph.set_yscale("log")
        graph.set_xticks(line.values, [f"{value:,}" for value in line.values], rotation=30)
        graph.set(title=line.title, xlabel=line.axis, ylabel=line.unit)
        graph.grid(alpha=0.3)
        graph.legend()
    figure.supxlabel(about, fontsize="x-small")
    figure.savefig(picture, dpi=110)


def _sides(options: argparse.Namespace) -> list[Side]:
    sides = [Side("nsqtw", options.nsqd, [])]
    if options.peer:
        sides.append(Side("nsqd, memory", options.peer, [_IN_MEMORY]))
        sides.append(Side("nsqd, defaults", options.peer, []))
    return sides


def main(argv: list[str]) -> int:
    """Measure, draw, or both. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--peer", type=Path, help="another nsqd, run alternately with ours")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each measurement publishes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw these figures instead of measuring")
    parser.add_argument("--png", type=Path, metavar="PICTURE", help="where to draw")
    options = parser.parse_args(argv)
    if options.draw:
        document = json.loads(options.draw.read_text())
    else:
        sides = _sides(options)
        commands = [shlex.join([str(side.executable), *side.flags]) for side in sides]
        print("\n".join([*commands, report.machine()]))
        try:
            document = {"about": report.machine(), "lines": sweep(sides, options.seconds, options.rounds)}
        except BenchError as error:
            print(f"sweep: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if options.png:
        draw(document["lines"], document["about"], options.png)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
