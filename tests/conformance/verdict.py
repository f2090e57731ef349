"""
What was played against what the tables say.

A round is one way to start nsqd, the scenarios played that way, and the rows for those that do not pass. A scenario
that fails and should not is played once more, with nothing beside it, before it counts: a busy machine can miss a
time. More than `_TOO_MANY` at once are no accident and count as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from .expectations import ON_PURPOSE, OPEN, SAFER, Outcome, Row, expected
from .play import Played, play, scenarios

_TOO_MANY = 20


@attrs.frozen
class Verdict:
    """What a round came to."""

    passed: int
    expected: dict[str, int]
    """By reason: how many scenarios did not pass, as the tables say."""
    surprises: dict[str, str]
    """By scenario: what is not as the tables say."""
    played_again: tuple[str, ...] = ()


@attrs.frozen
class Round:
    """One way to start nsqd."""

    name: str
    scenarios: tuple[str, ...]
    rows: tuple[Row, ...]
    flags: tuple[str, ...] = ()

    def play(self, only: Callable[[str], bool] = lambda scenario: True) -> Verdict:
        """Play those of its scenarios that are wanted; some of them twice, see above."""
        chosen = [scenario for scenario in self.scenarios if only(scenario)]
        played = play(chosen, self.flags) if chosen else {}
        again = [scenario for scenario in judge(chosen, played, self.rows).surprises if played.get(scenario)]
        if not 0 < len(again) <= _TOO_MANY:
            return judge(chosen, played, self.rows)
        played |= play(again, self.flags, jobs=1)
        return attrs.evolve(judge(chosen, played, self.rows), played_again=tuple(again))


def rounds() -> tuple[Round, Round]:
    """At the default options, and once more with --nsq-compat what is better on purpose without it."""
    everything = tuple(scenarios())
    better = tuple(scenario for scenario in everything if expected(scenario, ON_PURPOSE))
    return (
        Round("at the default options", everything, OPEN + ON_PURPOSE + SAFER),
        Round("with --nsq-compat", better, (), ("--nsq-compat",)),
    )


def judge(chosen: Iterable[str], played: Played, rows: Iterable[Row]) -> Verdict:
    """Compare what was played with the rows."""
    passed, as_expected, surprises = 0, Counter[str](), {}
    for scenario in chosen:
        row = expected(scenario, rows)
        wanted = row.outcome if row else Outcome.PASSES
        outcome = outcome_of(scenario, played)
        passed += outcome is Outcome.PASSES
        if outcome is not wanted:
            surprises[scenario] = played.get(scenario) or f"{outcome.value}, and {_why(row)}"
        elif row:
            as_expected[row.reason] += 1
    return Verdict(passed, dict(as_expected), surprises)


def outcome_of(scenario: str, played: Played) -> Outcome:
    """What became of a scenario."""
    if scenario not in played:
        return Outcome.NOT_PLAYED
    return Outcome.FAILS if played[scenario] else Outcome.PASSES


def _why(row: Row | None) -> str:
    return f"the row {row.pattern!r} says it {row.outcome.value}: {row.reason}" if row else "no row says why"
