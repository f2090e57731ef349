"""
``python -m tests.bench.instructions``: what the hot paths cost in instructions of the interpreter, which no other load
on the machine changes. With ``--write`` the figures become the ones that the test compares with, with ``--json`` they
are printed as JSON.

Counted are the bytecode instructions run outside of the tests' own code, while one of `fixed_work.WORKS` is done. C
code counts as the one instruction that calls it: this notices work that is done once more than before, which is how hot
paths get slow, and not a slower system call. Figures differ between versions of Python, and are kept for each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .fixed_work import TURNS, WORKS, Work, open_house

BASELINE = Path(__file__).with_name("instructions.json")
_TESTS = str(Path(__file__).parents[1])


def counted(call: Callable[[], None]) -> int:
    """Run `call` and count the instructions of all code that it runs in this thread and is not a test's."""
    steps = 0
    known: dict[CodeType, bool] = {}

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        is_test = known.get(code)
        if is_test is None:
            is_test = known[code] = code.co_filename.startswith(_TESTS)
        if is_test:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return step

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if event == "opcode":
            steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def measure(work: Work) -> float:
    """Instructions a message: the fewest of a few turns, after one that nobody counts."""
    with open_house() as harness:
        turn = work.prepare(harness)
        turn()
        return min(counted(turn) for _ in range(TURNS - 1)) / work.messages


def version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def recorded() -> dict[str, dict[str, float]]:
    """Version of Python -> name of the work -> instructions a message."""
    found: dict[str, dict[str, float]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found


def main(argv: list[str]) -> int:
    """Print the table, and keep it if asked. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.instructions", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {BASELINE.name}")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(argv)
    if options.json:
        print(json.dumps({work.name: measure(work) for work in WORKS}))
        return 0
    known = recorded()
    before = known.get(version(), {})
    now = {}
    print(f"{'instructions a message':<34} {'now':>9} {'kept':>9}")
    for work in WORKS:
        now[work.name] = round(measure(work), 2)
        kept = f"{before[work.name]:9.2f}" if work.name in before else "        -"
        print(f"{work.title:<34} {now[work.name]:9.2f} {kept}", flush=True)
    if options.write:
        BASELINE.write_text(json.dumps({**known, version(): now}, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
