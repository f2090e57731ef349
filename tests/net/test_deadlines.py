"""Who is looked at, how often, and how many in one turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent

from nsqtw.net.deadlines import CHECKS_PER_TURN, DeadlineSweeper
from nsqtw.options.broker import Options


class Guest:
    """Somebody who is looked at."""

    def __init__(self, looks: Counter[Guest], *, is_expected: bool = True, is_broken: bool = False) -> None:
        self._looks = looks
        self.is_expected = is_expected
        self._is_broken = is_broken
        self.is_gone = False

    def check(self, now: float) -> bool:
        self._looks[self] += 1
        if self._is_broken:
            raise ValueError("a look that fails")
        return self.is_expected

    def abort(self) -> None:
        self.is_gone = True


class TurnClock(Clock):
    """What is to be done at once is done in the next turn, and not in this one."""

    def __init__(self) -> None:
        super().__init__()
        self.next_turn: list[Callable[[], object]] = []

    def callLater(self, when: float, what: Any, *given: Any, **named: Any) -> Any:
        if when:
            return super().callLater(when, what, *given, **named)
        self.next_turn.append(partial(what, *given, **named))

    def turn(self) -> bool:
        """Whether there was something to do."""
        jobs, self.next_turn = self.next_turn, []
        for job in jobs:
            job()
        return bool(jobs)


class Harness:
    """Rounds, on a clock."""

    def __init__(self) -> None:
        self.clock = TurnClock()
        self.sweeper = DeadlineSweeper(self.clock, Options(node_id=1), self.clock.seconds)
        self.looks: Counter[Guest] = Counter()

    def guest(self, **kind: bool) -> Guest:
        guest = Guest(self.looks, **kind)
        self.sweeper.join(guest)
        return guest

    def looked_at(self, sweeper: int = 1) -> Counter[Guest]:
        """Who was looked at in so many rounds."""
        self.looks.clear()
        for _ in range(sweeper):
            self.clock.advance(self.sweeper.seconds)
            while self.clock.turn():
                pass
        return self.looks


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_who_may_be_late_is_looked_at_in_every_round(harness: Harness) -> None:
    guest = harness.guest()
    assert harness.looked_at(3) == {guest: 3}
    harness.sweeper.leave(guest)
    assert harness.looked_at(3) == {}


def test_of_whom_nothing_is_expected_is_looked_at_once_until_he_joins_again(harness: Harness) -> None:
    other, guest = harness.guest(), harness.guest(is_expected=False)
    assert harness.looked_at(3) == {other: 3, guest: 1}
    guest.is_expected = True
    assert harness.looked_at(3) == {other: 3}
    harness.sweeper.join(guest)
    assert harness.looked_at(3) == {other: 3, guest: 3}


def test_when_nothing_is_expected_of_anybody_the_timer_rests(harness: Harness) -> None:
    harness.guest(is_expected=False)
    harness.looked_at()
    assert harness.clock.getDelayedCalls() == []
    harness.guest()
    assert len(harness.looked_at()) == 1


def test_many_are_looked_at_in_several_turns(harness: Harness) -> None:
    guests = [harness.guest() for _ in range(2 * CHECKS_PER_TURN + 1)]
    harness.clock.advance(harness.sweeper.seconds)
    assert harness.looks == dict.fromkeys(guests[:CHECKS_PER_TURN], 1)
    harness.sweeper.leave(guests[-1])
    harness.sweeper.join(late := Guest(harness.looks))
    assert (harness.clock.turn(), harness.clock.turn(), harness.clock.turn()) == (True, True, False)
    assert harness.looks == dict.fromkeys(guests[:-1], 1)
    assert harness.looked_at() == dict.fromkeys([*guests[:-1], late], 1)


def test_one_who_is_broken_is_let_go_and_the_others_are_looked_at(
    harness: Harness, logged_failures: list[LogEvent]
) -> None:
    before, broken, after = harness.guest(), harness.guest(is_broken=True), harness.guest()
    assert harness.looked_at(2) == {before: 2, broken: 1, after: 2}
    assert (before.is_gone, broken.is_gone, after.is_gone) == (False, True, False)
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_one_who_cannot_even_be_let_go_does_not_end_the_rounds(
    harness: Harness, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, broken, after = harness.guest(), harness.guest(is_broken=True), harness.guest()
    monkeypatch.setattr(broken, "abort", partial(broken.check, 0.0))
    assert harness.looked_at(2) == {before: 2, broken: 2, after: 2}
    assert len(logged_failures) == 2
    logged_failures.clear()
