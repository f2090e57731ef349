"""The lag of a reactor, in a clock that the test owns."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from nsqtw.runtime.reactor_lag import SECONDS, WINDOW_SECONDS, ReactorLag


def pass_time(clock: Clock, seconds: float) -> None:
    """Without any stall."""
    clock.pump([SECONDS] * round(seconds / SECONDS))


def test_a_reactor_that_keeps_its_times_has_none() -> None:
    clock = Clock()
    lag = ReactorLag(clock)
    lag.start()
    pass_time(clock, 60)
    assert lag.worst == 0


def test_a_stall_shows_for_a_window_and_then_goes() -> None:
    clock = Clock()
    lag = ReactorLag(clock)
    lag.start()
    clock.advance(SECONDS + 1.25)
    pass_time(clock, WINDOW_SECONDS)
    assert lag.worst == pytest.approx(1.25)
    pass_time(clock, WINDOW_SECONDS * 2)
    assert lag.worst == 0


def test_it_leaves_no_call_behind() -> None:
    clock = Clock()
    lag = ReactorLag(clock)
    lag.start()
    lag.stop()
    assert clock.getDelayedCalls() == []
