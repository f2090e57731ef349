"""
``python -m tests.bench.lookupd``: nsqlookupd with 100,000 registrations, as Markdown tables.

The registrations by themselves, in CPU: what they take, and how long questions do. Then whole daemons with default
flags over TCP and HTTP, by the clock: the latency of /lookup and /nodes, and how long PINGs take while /nodes is
answered.
"""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from . import lookup_core, lookup_load, report
from .errors import BenchError
from .lookup_core import CoreFigures
from .lookup_load import LoadFigures
from .lookup_shape import QUICK_SHAPES, SHAPES, Shape

MB = 1e6
ROUNDS, QUICK_ROUNDS = 10, 1
CORE_HEAD = [
    "the registrations alone",
    "resident, traced MB",
    "REGISTER us",
    "lookup us",
    "nodes ms, longest piece ms",
    "nodes MB",
    "disconnect ms",
    "snapshot ms, MB",
    "restore ms",
]
LOAD_HEAD = [
    "daemon",
    "registrations",
    "resident MB, empty and full",
    "REGISTER us (CPU)",
    "/lookup ms, 99th",
    "/nodes ms",
    "/nodes MB",
    "PING ms, 99th",
    "during /nodes ms, longest",
]


def core_row(shape: Shape, figures: CoreFigures) -> list[str]:
    return [
        shape.title,
        f"{figures.resident / MB:.1f}, {figures.traced / MB:.1f}",
        f"{figures.register * 1e6:.1f}",
        f"{figures.lookup * 1e6:.0f}",
        f"{figures.nodes * 1e3:.1f}, {figures.nodes_piece * 1e3:.2f}",
        f"{figures.nodes_bytes / MB:.1f}",
        f"{figures.gone * 1e3:.1f}",
        f"{figures.save * 1e3:.0f}, {figures.snapshot_bytes / MB:.1f}",
        f"{figures.restore * 1e3:.0f}",
    ]


def load_row(side: str, shape: Shape, figures: LoadFigures) -> list[str]:
    return [
        side,
        shape.title,
        f"{figures.empty / MB:.0f}, {figures.full / MB:.0f}",
        f"{figures.register * 1e6:.0f}",
        f"{median(figures.lookups) * 1e3:.1f}, {_late(figures.lookups) * 1e3:.1f}",
        f"{median(figures.nodes) * 1e3:.0f}",
        f"{figures.nodes_bytes / MB:.1f}",
        f"{median(figures.pings) * 1e3:.2f}, {_late(figures.pings) * 1e3:.2f}",
        f"{median(figures.pings_meanwhile) * 1e3:.2f}, {median(figures.longest) * 1e3:.1f}",
    ]


def _late(times: list[float]) -> float:
    """
    The 99th of a hundred.
    """
    return sorted(times)[len(times) * 99 // 100]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def in_new_process(shape: Shape) -> CoreFigures:
    """
    Figures of the core, of a process that has done nothing else.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(lookup_core.measure, shape).result()


def _arguments(argv: list[str]) -> argparse.Namespace:
    ours = Path(sys.executable).with_name("nsqlookupd")
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lookupd", description=__doc__)
    parser.add_argument("--nsqlookupd", type=Path, default=ours, help="ours (default: %(default)s)")
    parser.add_argument("--peer", type=Path, help="another nsqlookupd")
    parser.add_argument("--quick", action="store_true", help="few registrations; the figures mean little")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """
    Run it. Returns the exit status: 1 when something failed or was miscounted.
    """
    options = _arguments(argv)
    shapes, rounds = (QUICK_SHAPES, QUICK_ROUNDS) if options.quick else (SHAPES, ROUNDS)
    sides = [("ours", options.nsqlookupd), *([("peer", options.peer)] if options.peer else [])]
    print(report.machine(), end="\n\n")
    try:
        print(_table(CORE_HEAD, [core_row(shape, in_new_process(shape)) for shape in shapes]), flush=True)
        rows = [
            load_row(side, shape, lookup_load.measure(executable, shape, rounds))
            for shape in shapes
            for side, executable in sides
        ]
    except BenchError as failure:
        print(failure, file=sys.stderr)
        return 1
    print(_table(LOAD_HEAD, rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
