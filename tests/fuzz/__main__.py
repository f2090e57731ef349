"""See tests/fuzz/__init__.py."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.fuzz.campaign import Found, Tally, attempt, explore, run
from tests.fuzz.targets import BY_NAME, TARGETS

CI_SEED = "1"
"""As in the Makefile."""


def main(words: Sequence[str]) -> int:
    """The exit code: 1 when something was found."""
    if words[:1] == ["replay"]:
        return _replay(words[1], Path(words[2]).read_bytes())
    if words == ["table"]:
        return _table()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--seed", default=str(SystemRandom().randrange(10**9)))
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(BY_NAME)}; all when none is named")
    given = parser.parse_args(words)
    chosen = [BY_NAME[name] for name in given.targets] or list(TARGETS)
    print(f"seed {given.seed}; the same again: python -m tests.fuzz --seed {given.seed} --minutes {given.minutes:g}")
    found = 0
    for kind in chosen:
        found += _explore(kind.name, given.seed, 60 * given.minutes / len(chosen))
    return int(found > 0)


def _explore(name: str, seed: str, seconds: float) -> bool:
    target = BY_NAME[name]()
    end = time.monotonic() + seconds
    try:
        print(_row(name, explore(target, seed, lambda: time.monotonic() < end)), flush=True)
    except Found as found:
        print(found, flush=True)
        return True
    finally:
        target.close()
    return False


def _table() -> int:
    print("| inputs | tried | outcome |\n|---|---:|---|")
    for kind in TARGETS:
        target = kind()
        tally = run(target, CI_SEED, range(target.examples))
        print(f"| {target.kind} (`{target.name}`) | {tally.examples:,} | {_outcomes(tally)} |", flush=True)
    return 0


def _outcomes(tally: Tally) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in tally.outcomes.most_common())


def _row(name: str, tally: Tally) -> str:
    most = f"{tally.most_steps} steps, {tally.most_memory} bytes at most"
    return f"{name:<10} {tally.examples:>7} inputs, {most}: {_outcomes(tally)}"


def _replay(name: str, data: bytes) -> int:
    target, tally = BY_NAME[name](), Tally()
    try:
        attempt(target, data, tally)
    finally:
        target.close()
    print(_row(name, tally))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
