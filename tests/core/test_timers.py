"""The agenda: everybody is called when due, once, and not for a moment that was moved."""

from __future__ import annotations

import weakref

from nsqtw.core.timers import Timer, TimerQueue


def unexpected() -> None:
    raise AssertionError("nothing should have failed")


class Caller(Timer):
    def __init__(self, *again: float) -> None:
        super().__init__()
        self.called: list[float] = []
        self.again = list(again)

    def on_timer(self, now: float) -> float | None:
        self.called.append(now)
        return self.again.pop(0) if self.again else None


def test_calls_come_when_due_and_the_next_moment_is_told() -> None:
    timers, early, late = TimerQueue(unexpected), Caller(), Caller()
    timers.schedule(2.0, late)
    timers.schedule(1.0, early)
    assert timers.run(0.5) == 1.0
    assert timers.run(1.5) == 2.0
    assert timers.run(2.0) is None
    assert (early.called, late.called) == ([1.5], [2.0])


def test_an_earlier_moment_replaces_a_later_one_and_a_later_one_changes_nothing() -> None:
    timers, caller = TimerQueue(unexpected), Caller()
    timers.schedule(5.0, caller)
    timers.schedule(1.0, caller)
    timers.schedule(9.0, caller)
    timers.run(2.0)
    timers.run(10.0)
    assert caller.called == [2.0]


def test_who_asks_again_is_called_again() -> None:
    timers, caller = TimerQueue(unexpected), Caller(2.0, 3.0)
    timers.schedule(1.0, caller)
    assert timers.run(1.0) == 2.0
    assert timers.run(2.0) == 3.0
    timers.run(3.0)
    assert caller.called == [1.0, 2.0, 3.0]


def test_one_who_is_due_again_at_once_waits_for_the_next_run() -> None:
    timers, caller = TimerQueue(unexpected), Caller(1.0)
    timers.schedule(1.0, caller)
    assert timers.run(1.0) == 1.0
    assert caller.called == [1.0]


def test_moments_that_were_moved_do_not_pile_up() -> None:
    timers, caller = TimerQueue(unexpected), Caller(*[1e6] * 5000)
    timers.schedule(1e6, caller)
    for now in range(5000):
        timers.schedule(now, caller)
        timers.run(now)
    assert len(caller.called) == 5000
    assert len(timers._heap) < 200
    assert timers.next_due == 1e6


def test_cancelled_entries_do_not_pile_up_and_are_freed() -> None:
    timers = TimerQueue(unexpected)
    last = Caller()
    timers.schedule(2e6, last)
    freed: list[int] = []
    for number in range(5000):
        caller = Caller()
        weakref.finalize(caller, freed.append, number)
        timers.schedule(1e6, caller)
        timers.cancel(caller)
        timers.schedule(1.0, caller)  # what is cancelled stays so
        del caller
        assert len(freed) == number + 1
    assert len(timers._heap) < 200
    assert timers.run(1.5e6) == 2e6
    assert last.called == []


def test_one_that_fails_does_not_keep_the_others_from_what_is_due() -> None:
    class Broken(Timer):
        def on_timer(self, now: float) -> float | None:
            raise ZeroDivisionError

    failures: list[bool] = []
    timers, broken, caller = TimerQueue(lambda: failures.append(True)), Broken(), Caller()
    timers.schedule(1.0, broken)
    timers.schedule(1.0, caller)
    assert timers.run(1.0) is None
    assert (failures, caller.called) == ([True], [1.0])
