"""Spark writes real records to the broker, which is killed half-way. Two consumers, an archive, SQL and a replay of the
archive get them all.

Exit code 0: nothing was lost; 1: something was; 2: the demo could not run.
"""

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from contrib.demo import records
from contrib.demo.broker import Broker
from contrib.demo.errors import DemoError
from contrib.demo.picture import PICTURE
from contrib.demo.report import LEGEND, kinds_table, table, verdict
from contrib.demo.show import Show

PROJECT = Path(__file__).resolve().parent.parent.parent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m contrib.demo", description=__doc__)
    parser.add_argument("--input", type=Path, help="a file of JSON lines in place of ours")
    parser.add_argument(
        "--dpkg-status", type=Path, default=records.DPKG_STATUS, help="the package database (%(default)s)"
    )
    parser.add_argument(
        "--nsqd", type=Path, default=Path(sys.executable).parent / "nsqd", help="the broker (%(default)s)"
    )
    parser.add_argument("--nsqd-flags", type=shlex.split, default=[], help="more flags for the broker")
    parser.add_argument("--keep", action="store_true", help="keep the files, also when nothing was lost")
    return parser.parse_args(arguments)


def main() -> int:
    given = parse()
    # So that a demo that is told to end takes its processes with it.
    signal.signal(signal.SIGTERM, _end)
    folder = Path(tempfile.mkdtemp(prefix="nsqtw-demo-"))
    try:
        code = run(given, folder)
    except DemoError as failure:
        print(f"demo: {failure}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        code = 130
    if code in (1, 2) and any(log.stat().st_size for log in folder.glob("*.log")):
        print(f"demo: the logs are in {folder}", file=sys.stderr)
    elif not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def run(given: argparse.Namespace, folder: Path) -> int:
    if given.input is not None:
        found = records.from_file(given.input)
    else:
        found = records.of_this_machine(PROJECT, folder, given.dpkg_status)
    end = "they stay there" if given.keep else "removed at the end, unless something fails; make demo KEEP=1 keeps them"
    print(
        f"{PICTURE}\n\nThe files are in {folder}: the broker's data, logs, and the archive in lake; {end}.\n",
        flush=True,
    )
    show = Show(Broker(given.nsqd, folder, given.nsqd_flags), found, folder)
    outcomes = show.run()
    print(f"\n{kinds_table(show.kinds)}\n\n{table(outcomes)}\n\n{LEGEND}\n\n{verdict(outcomes)}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
