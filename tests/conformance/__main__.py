"""
``python -m tests.conformance [AREA/NAME...]``: the scenarios of the kit against our broker, all or those that match.

Exit status 1 if anything is not as `expectations.py` says.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase

from .verdict import Verdict, rounds


def main(patterns: list[str]) -> int:
    """Play, and print what came of it."""

    def only(scenario: str) -> bool:
        return not patterns or any(fnmatchcase(scenario, pattern) for pattern in patterns)

    surprised, played = False, 0
    for one in rounds():
        chosen = sum(map(only, one.scenarios))
        if not chosen:
            continue
        print(f"{chosen} scenarios {one.name}", flush=True)
        verdict = one.play(only)
        _print(verdict)
        played += chosen
        surprised |= bool(verdict.surprises)
    if not played:
        print(f"no scenario matches {' '.join(patterns)}", file=sys.stderr)
    return int(surprised or not played)


def _print(verdict: Verdict) -> None:
    for scenario in verdict.played_again:
        print(f"  played again, alone: {scenario}")
    for scenario, what in verdict.surprises.items():
        print(f"  NOT AS EXPECTED {scenario}: {what}")
    print(f"  {verdict.passed} pass, {len(verdict.surprises)} are not as expected")
    for reason, count in verdict.expected.items():
        print(f"  {count} do not pass: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
