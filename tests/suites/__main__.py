"""
``python -m tests.suites [NAME...]``: the clients' own tests against our broker, all suites or those named.

Exit status 1 if a suite does not pass as the table says.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .runner import PROGRAMS, run
from .suite import SuiteError
from .table import SUITES


def main(argv: list[str]) -> int:
    """Run them one after another, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(SUITES)} (default: all)")
    parser.add_argument("--all", action="store_true", help="also the tests that are left out")
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="directory with nsqd (default: %(default)s)")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.names) - set(SUITES)
    if unknown:
        parser.error(f"no suite is called {', '.join(sorted(unknown))}: there are {', '.join(SUITES)}")
    good = [_run(name, arguments.programs.resolve(), arguments.all) for name in arguments.names or SUITES]
    return int(not all(good))


def _run(name: str, programs: Path, everything: bool) -> bool:
    try:
        result = run(SUITES[name], programs, everything)
    except SuiteError as error:
        print(error, file=sys.stderr)
        return False
    print(result, flush=True)
    if not result.is_good:
        print(result.said[-8000:])
    return result.is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
