"""A turn's events: what is waited for, and what is asked for again and again. With a poller that the test owns."""

from __future__ import annotations

import pytest

from nsqtw.runtime.events import FOR_EVER, SHORT_SECONDS, SHORT_WAITS, SPIN_SECONDS, Events


class FakeReactor:
    """One that has no descriptors."""

    def __init__(self) -> None:
        self._selectables: dict[int, object] = {}


class Waits:
    """The poller and the clock: something comes `after` so many seconds, a poll takes a microsecond."""

    def __init__(self, *, may_spin: bool = True) -> None:
        self.now = 0.0
        self.comes_at = 0.0
        self.slept = 0
        self.asked = 0
        self.timeouts: list[float] = []
        self.events = Events(FakeReactor(), self.poll, lambda: self.now, may_spin)

    def after(self, seconds: float) -> None:
        self.comes_at = self.now + seconds

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        self.now += 1e-6
        self.timeouts.append(timeout)
        if timeout == 0:
            self.asked += 1
            return [(0, 0)] if self.now >= self.comes_at else []
        self.slept += 1
        self.now = max(self.now, self.comes_at)
        return [(0, 0)]

    def wait(self, seconds: float) -> tuple[bool, bool]:
        """Something comes after that time: whether it was asked for meanwhile, and whether that was slept."""
        self.slept = self.asked = 0
        self.after(seconds)
        self.events.turn(FOR_EVER)
        assert self.now >= self.comes_at
        return bool(self.asked), bool(self.slept)


@pytest.fixture
def waits() -> Waits:
    return Waits()


ASKS, SLEEPS = (True, False), (False, True)
SHORT, LONG = SHORT_SECONDS / 2, SHORT_SECONDS * 2


def test_after_some_short_waits_the_next_one_is_spent_asking(waits: Waits) -> None:
    for _ in range(SHORT_WAITS):
        assert waits.wait(SHORT) == SLEEPS
    for _ in range(10):
        assert waits.wait(SPIN_SECONDS / 2) == ASKS


def test_asking_in_vain_ends_it(waits: Waits) -> None:
    for _ in range(SHORT_WAITS):
        waits.wait(SHORT)
    began = waits.now
    assert waits.wait(1.0) == (True, True)
    assert waits.asked <= SPIN_SECONDS / 1e-6 + 2
    assert waits.now == pytest.approx(began + 1)
    assert waits.wait(SHORT) == SLEEPS


def test_short_and_long_waits_in_turn_are_slept(waits: Waits) -> None:
    for seconds in [SHORT, LONG] * 2 * SHORT_WAITS:
        assert waits.wait(seconds) == SLEEPS


def test_after_asking_in_vain_a_timer_is_not_slept_through(waits: Waits) -> None:
    for _ in range(SHORT_WAITS):
        waits.wait(SHORT)
    waits.timeouts.clear()
    waits.after(1.0)
    waits.events.turn(0.5)
    assert [timeout for timeout in waits.timeouts if timeout] == [0.5]


def test_who_may_not_spin_sleeps() -> None:
    waits = Waits(may_spin=False)
    for _ in range(3 * SHORT_WAITS):
        assert waits.wait(SHORT) == SLEEPS


@pytest.mark.parametrize("seconds", [FOR_EVER, 5.0, 0.0])
def test_an_end_is_not_waited_for(waits: Waits, seconds: float) -> None:
    ends: list[int] = []

    def end() -> None:
        ends.append(len(waits.timeouts))
        if len(ends) < 3:
            waits.events.at_end(end)

    waits.events.at_end(end)
    waits.after(1.0)
    for _ in range(3):
        waits.events.turn(seconds)
    assert (ends, waits.timeouts) == ([1, 2, 3], [0, 0, 0])
    waits.events.turn(seconds)
    assert waits.timeouts == [0, 0, 0, seconds]
