"""
``python -m tests.bench.beside``: protocol V3 beside V2, on one broker for each pair of cases. Their rounds take turns,
so that whatever else the machine does meets both.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from . import report
from .cases import CASES, Case, Figure, Size
from .errors import BenchError
from .report import Summary
from .server import default_executable
from .sides import Side, measure, started
from .v3_cases import FLAGS, V3_CASES

_PREFIX = "v3-"


@dataclass(frozen=True)
class Pair:
    """
    The same work over both protocols.
    """

    v2: Case
    v3: Case


def _pairs() -> dict[str, Pair]:
    known = {case.name: case for case in (*CASES, *V3_CASES)}
    names = [case.name.removeprefix(_PREFIX) for case in V3_CASES if case.name.startswith(_PREFIX)]
    return {name: Pair(known[name], known[_PREFIX + name]) for name in names}


PAIRS = _pairs()


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.beside", description=__doc__, epilog=report.LEGEND)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of each case (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long publishers run (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=200_000, help="size of a backlog (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=PAIRS, help="run only this pair (may be repeated)")
    return parser.parse_args(argv)


def _measured(pair: Pair, side: Side, size: Size, rounds: int) -> dict[str, Summary]:
    """
    The figures of both. The first one of a round is the second one of the next.
    """
    figures: dict[str, list[Figure]] = {pair.v2.name: [], pair.v3.name: []}
    order = [pair.v2, pair.v3]
    with started(side) as broker:
        for number in range(rounds):
            for case in order:
                figures[case.name].append(measure(case, side, broker, f"{case.name}.{number}", size))
            order.reverse()
    return {"V3": Summary.of(figures[pair.v3.name]), "V2": Summary.of(figures[pair.v2.name])}


def main(argv: list[str]) -> int:
    """
    Print the table. Returns the exit status: 1 when a broker failed or miscounted.
    """
    options = _arguments(argv)
    size = Size(options.seconds, options.messages)
    print(f"{report.machine()}\n{options.rounds} round(s)\n\n{report.HEADER}", flush=True)
    for name in options.only or PAIRS:
        pair = PAIRS[name]
        try:
            sides = _measured(pair, Side("ours", options.nsqd, FLAGS), size, options.rounds)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
        print("\n".join(report.lines(pair.v2, sides)), flush=True)
    print(f"\n{report.LEGEND}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
