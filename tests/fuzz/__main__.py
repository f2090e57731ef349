"""See tests/fuzz/__init__.py."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.fuzz.campaign import Found, Tally, attempt, explore
from tests.fuzz.targets import BY_NAME, TARGETS


def main(words: Sequence[str]) -> int:
    """The exit code: 1 when something was found."""
    if words[:1] == ["replay"]:
        return _replay(words[1], Path(words[2]).read_bytes())
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


def _row(name: str, tally: Tally) -> str:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common())
    most = f"{tally.most_steps} steps, {tally.most_memory} bytes at most"
    return f"{name:<10} {tally.examples:>7} inputs, {most}: {outcomes}"


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
