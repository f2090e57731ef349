"""
``python -m tests.bench.durability``: what each durability class costs with each backend, side by side in one run, as
a Markdown table.

The peer runs with ``--mem-queue-size=0 --sync-every=1``, where it syncs for every message it stores and every one it
reads: its backlog is smaller, or it would take an hour.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from . import report
from .cases import CASES, Case, Figure, Size
from .errors import BenchError
from .report import Summary
from .server import default_executable
from .sides import Side, measure

COLUMNS = ("mpub", "pub-64", "sub-1")
FULL, FULL_ROUNDS = Size(seconds=3.0, messages=400_000), 5
QUICK, QUICK_ROUNDS = Size(seconds=0.25, messages=10_000), 1
PEER_FLAGS = ["--mem-queue-size=0", "--sync-every=1"]
PEER_MESSAGES = 1000

Figures = dict[str, dict[str, list[Figure]]]
"""Name of the side -> name of the case -> the rounds."""


def our_sides(executable: Path) -> list[Side]:
    """
    Every backend that keeps messages in every class, and the one that does not.
    """
    sides = [Side("dummy", executable, ["--backend=dummy", "--durability=memory"])]
    for backend in ("disk", "sqlite"):
        for durability in ("memory", "os", "fsync"):
            flags = [f"--backend={backend}", f"--durability={durability}"]
            sides.append(Side(f"{backend}, {durability}", executable, flags))
    return sides


def peer_side(executable: Path) -> Side:
    return Side(f"{executable.name} {' '.join(PEER_FLAGS)}", executable, PEER_FLAGS)


def run(sides: list[Side], cases: list[Case], size: Size, rounds: int, peer: str) -> Figures:
    """
    Measure the sides in turn, each case by each before the next round. `BenchError` when one fails or miscounts.
    """
    figures: Figures = {side.name: defaultdict(list) for side in sides}
    for number in range(rounds):
        for case in cases:
            for side in sides:
                its_size = replace(size, messages=min(size.messages, PEER_MESSAGES)) if side.name == peer else size
                figures[side.name][case.name].append(measure(case, side, None, f"{case.name}.{number}", its_size))
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr)
    return figures


def table(cases: list[Case], figures: Figures) -> str:
    """
    A row for each side: messages a second, median of the rounds, and half the distance from slowest to fastest.
    """
    rows = [["backend, class", *(case.title for case in cases)], ["---"] * (len(cases) + 1)]
    for name, of_side in figures.items():
        summaries = [Summary.of(of_side[case.name]) for case in cases]
        rows.append([name, *(f"{one.rate:,.0f} ± {one.spread * 100:.0f} %" for one in summaries)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.durability", description=__doc__)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--peer", type=Path, help="another nsqd, run alternately with ours")
    parser.add_argument("--rounds", type=int, help=f"rounds of each case (default: {FULL_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="one short round; the figures mean little")
    parser.add_argument("--side", action="append", metavar="NAME", help="only this one of ours, as 'disk, os'")
    options = parser.parse_args(argv)
    known = [side.name for side in our_sides(options.nsqd)]
    for name in options.side or []:
        if name not in known:
            parser.error(f"nothing is named {name!r}; there are {known}")
    return options


def main(argv: list[str]) -> int:
    """
    Run it. Returns the exit status: 1 when a broker failed or miscounted.
    """
    options = _arguments(argv)
    sides = [side for side in our_sides(options.nsqd) if not options.side or side.name in options.side]
    peer = ""
    if options.peer:
        sides.append(peer_side(options.peer))
        peer = sides[-1].name
    cases = [case for case in CASES if case.name in COLUMNS]
    size, rounds = (QUICK, QUICK_ROUNDS) if options.quick else (FULL, FULL_ROUNDS)
    rounds = options.rounds or rounds
    try:
        figures = run(sides, cases, size, rounds, peer)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{report.machine()}; {size.seconds:g} s or {size.messages:,} messages a run, {rounds} round(s)\n")
    print(table(cases, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
