"""Long computations: their steps take turns, and other work of the reactor comes in between."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.task import Clock

from nsqtw.runtime.long_work import SLICE_SECONDS, LongWork


class Harness:
    """Long work on a clock that each step moves forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reactor = Clock()
        self.long_work = LongWork(self.reactor, lambda: self.now)
        self.done: list[str] = []

    def steps(self, name: str, count: int, seconds: float = 0.0) -> Iterator[None]:
        for number in range(count):
            self.now += seconds
            self.done.append(f"{name}{number}")
            yield

    def turn(self) -> list[str]:
        """Return the steps of one turn."""
        self.done.clear()
        due, self.reactor.calls = self.reactor.calls, []
        for call in due:
            call.func(*call.args, **call.kw)
        return list(self.done)


def test_work_begins_in_a_later_turn() -> None:
    harness = Harness()
    harness.long_work.add(harness.steps("a", 3))
    assert harness.done == []
    assert harness.turn() == ["a0", "a1", "a2"]
    assert harness.reactor.getDelayedCalls() == []


def test_long_work_takes_many_turns_and_short_work_passes_it() -> None:
    harness = Harness()
    harness.long_work.add(harness.steps("a", 5, SLICE_SECONDS / 2))
    assert harness.turn() == ["a0", "a1"]
    harness.long_work.add(harness.steps("b", 1))
    turns = [harness.turn() for _ in range(3)]
    assert "b0" in turns[0]
    assert [step for turn in turns for step in turn if step != "b0"] == ["a2", "a3", "a4"]
    assert harness.reactor.getDelayedCalls() == []


def test_a_step_may_be_longer_than_a_slice() -> None:
    harness = Harness()
    harness.long_work.add(harness.steps("a", 2, 2 * SLICE_SECONDS))
    assert harness.turn() == ["a0"]
    assert harness.turn() == ["a1"]
    harness.turn()
    assert harness.reactor.getDelayedCalls() == []


def test_a_failure_is_logged_and_the_rest_goes_on(logged_failures: list[object]) -> None:
    def broken() -> Iterator[None]:
        yield
        raise RuntimeError("in the middle")

    harness = Harness()
    harness.long_work.add(broken())
    harness.long_work.add(harness.steps("a", 2))
    assert harness.turn() == ["a0", "a1"]
    assert len(logged_failures) == 1
    logged_failures.clear()
