"""
``python -m tests.bench``: the table of rates and latencies, of one broker or of several alternately.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from . import report
from .cases import CASES, Case, Figure, Size
from .errors import BenchError
from .report import Summary
from .server import Broker, default_executable, running
from .sides import Side, measure
from .tools import tool_cases
from .v3_cases import FLAGS, V3_CASES

FULL = Size(seconds=3.0, messages=400_000)
QUICK = Size(seconds=0.25, messages=20_000)
IN_MEMORY = ["--mem-queue-size=1000000"]
"""With this nsqd writes nothing to disk here: its fastest."""


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__, epilog=report.LEGEND)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--peer", type=Path, help="another nsqd, run alternately with ours, twice: memory and defaults")
    parser.add_argument("--peer-args", help="run the peer once, with these flags, in one string")
    parser.add_argument("--tools", type=Path, metavar="DIR", help="where NSQ's bench_writer and bench_reader are")
    parser.add_argument("--v3", action="store_true", help="protocol V3, too, which a peer does not speak")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default: 3, quick: 1)")
    parser.add_argument("--seconds", type=float, help=f"how long publishers run (default: {FULL.seconds:g})")
    parser.add_argument("--messages", type=int, help=f"size of a backlog (default: {FULL.messages})")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; the figures mean little")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only this case (may be repeated)")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there as JSON, too")
    options = parser.parse_args(argv)
    if options.v3 and options.peer:
        parser.error("--v3 is without a peer")
    known = [case.name for case in _cases(options)]
    for name in options.only or []:
        if name not in known:
            parser.error(f"no case is named {name!r}; there are {', '.join(known)}")
    return options


def _cases(options: argparse.Namespace) -> list[Case]:
    others = [*(V3_CASES if options.v3 else []), *(tool_cases(options.tools) if options.tools else [])]
    return [*CASES, *others]


def _sides(options: argparse.Namespace) -> list[Side]:
    """
    Ours first. A peer stands twice beside it, at its fastest and as it is, unless its flags are given.
    """
    ours = Side("ours", options.nsqd, [*shlex.split(options.args), *(FLAGS if options.v3 else [])])
    if not options.peer:
        return [ours]
    if options.peer_args is not None:
        return [ours, Side("peer", options.peer, shlex.split(options.peer_args))]
    return [ours, Side("memory", options.peer, IN_MEMORY), Side("defaults", options.peer, [])]


def _size(options: argparse.Namespace) -> Size:
    chosen = QUICK if options.quick else FULL
    return Size(options.seconds or chosen.seconds, options.messages or chosen.messages)


@contextmanager
def _brokers(sides: list[Side], shared: bool) -> Iterator[dict[str, Broker | None]]:
    """
    With ``shared`` one broker a side for the whole run, else None: each measurement starts its own.
    """
    with ExitStack() as stack:
        yield {
            side.name: stack.enter_context(running(side.executable, side.flags)) if shared else None for side in sides
        }


def _compare(cases: list[Case], sides: list[Side], size: Size, rounds: int, shared: bool) -> report.Results:
    """
    Measure every case on the sides in turn, ``rounds`` times, and print its rows when it is done.
    """
    results: report.Results = {}
    with _brokers(sides, shared) as brokers:
        for case in cases:
            figures: dict[str, list[Figure]] = {side.name: [] for side in sides}
            for number in range(rounds):
                for side in sides:
                    topic = f"{case.name}.{number}"
                    figures[side.name].append(measure(case, side, brokers[side.name], topic, size))
            results[case.name] = {name: Summary.of(figures[name]) for name in figures}
            print("\n".join(report.lines(case, results[case.name])), flush=True)
    return results


def main(argv: list[str]) -> int:
    """
    Run the benchmark. Returns the exit status: 1 when a broker failed or miscounted.
    """
    options = _arguments(argv)
    cases = [case for case in _cases(options) if not options.only or case.name in options.only]
    if options.list:
        print("\n".join(f"{case.name:<14} {case.title} ({case.unit})" for case in cases))
        return 0
    sides = _sides(options)
    size, rounds = _size(options), options.rounds or (1 if options.quick else 3)
    commands = {side.name: shlex.join([str(side.executable), *side.flags]) for side in sides}
    machine = report.machine()
    print("\n".join(f"{name}: {command}" for name, command in commands.items()))
    print(f"{machine}\n{size.seconds:g} s or {size.messages:,} messages a run, {rounds} round(s)\n")
    print(report.HEADER, flush=True)
    try:
        results = _compare(cases, sides, size, rounds, shared=options.quick)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{report.LEGEND}")
    if options.json:
        about = {"machine": machine, "commands": commands, "size": asdict(size), "rounds": rounds}
        options.json.write_text(report.document(about, results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
