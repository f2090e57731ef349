"""The check itself: what it calls not as expected, and when a scenario is played again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from . import verdict
from .expectations import ON_PURPOSE, OPEN, SAFER, Outcome, Row, expected
from .play import Played, read, scenarios
from .verdict import Round, judge, rounds

ROWS = (
    Row("tls/*", "no TLS", but=("tls/optional",)),
    Row("lookupd/*", "no nsqlookupd", outcome=Outcome.NOT_PLAYED),
)


def test_every_row_is_about_a_scenario_and_no_scenario_has_two() -> None:
    about = [[scenario for scenario in scenarios() if row.is_about(scenario)] for row in OPEN + ON_PURPOSE + SAFER]
    assert all(about)
    flat = sum(about, [])
    assert len(flat) == len(set(flat))


def test_only_what_is_better_on_purpose_is_played_with_nsq_compat() -> None:
    at_defaults, with_compat = rounds()
    assert set(with_compat.scenarios) == {name for name in scenarios() if expected(name, ON_PURPOSE)}
    assert list(at_defaults.scenarios) == scenarios()


def test_what_the_kit_says() -> None:
    lines = ["FAIL pub/bad: step 1 (recv c): want 1: got 2", "ok   pub/good (0.31s)", "slowest: pub/good 0.3s"]
    assert read("\n".join(lines)) == {"pub/bad": "step 1 (recv c): want 1: got 2", "pub/good": ""}


@pytest.mark.parametrize(
    ("scenario", "played", "what"),
    [
        ("pub/good", {"pub/good": "want 1"}, "want 1"),
        ("pub/good", {}, "is not played, and no row says why"),
        ("tls/v1", {"tls/v1": ""}, "passes, and the row 'tls/*' says it fails: no TLS"),
        ("tls/v1", {}, "is not played, and the row 'tls/*' says it fails: no TLS"),
        ("tls/optional", {"tls/optional": "want 1"}, "want 1"),
        ("lookupd/ping", {"lookupd/ping": ""}, "passes, and the row 'lookupd/*' says it is not played: no nsqlookupd"),
        ("lookupd/ping", {"lookupd/ping": "want 1"}, "want 1"),
    ],
)
def test_what_is_not_as_expected(scenario: str, played: Played, what: str) -> None:
    assert judge([scenario], played, ROWS).surprises == {scenario: what}


def test_what_is_as_expected() -> None:
    played = {"pub/good": "", "tls/v1": "want 1", "tls/optional": ""}
    found = judge([*played, "lookupd/ping"], played, ROWS)
    assert found == verdict.Verdict(passed=2, expected={"no TLS": 1, "no nsqlookupd": 1}, surprises={})


class Kit:
    """Plays what it is told to, and remembers it."""

    def __init__(self, *outcomes: Played) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[list[str], tuple[str, ...], int | None]] = []

    def play(self, only: Iterable[str], flags: Iterable[str] = (), jobs: int | None = None) -> Played:
        self.calls.append((list(only), tuple(flags), jobs))
        return self.outcomes.pop(0)


def test_what_fails_and_should_not_is_played_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit({"pub/a": "late", "pub/b": "wrong", "pub/c": "", "tls/v1": "none"}, {"pub/a": "", "pub/b": "wrong"})
    monkeypatch.setattr(verdict, "play", kit.play)
    found = Round("here", ("pub/a", "pub/b", "pub/c", "tls/v1"), ROWS, ("--flag",)).play()
    assert kit.calls == [
        (["pub/a", "pub/b", "pub/c", "tls/v1"], ("--flag",), None),
        (["pub/a", "pub/b"], ("--flag",), 1),
    ]
    assert found.surprises == {"pub/b": "wrong"}
    assert found.played_again == ("pub/a", "pub/b")


def test_too_many_failures_are_no_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {f"pub/{number}": "wrong" for number in range(21)}
    kit = Kit(broken)
    monkeypatch.setattr(verdict, "play", kit.play)
    found = Round("here", tuple(broken), ROWS).play()
    assert found.surprises == broken
    assert len(kit.calls) == 1
