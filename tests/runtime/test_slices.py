"""Work in pieces: everybody gets a turn in between, and so does other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsqtw.runtime.slices import SLICE_SECONDS, Slices


class Office:
    """Slices in turns of the test's, in which a piece takes as long as it says. It is the reactor, too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[Callable[[], None]] = []
        self.slices = Slices(self, lambda: self.now)
        self.done: list[str] = []

    def callLater(self, seconds: float, work: Callable[[], None]) -> None:
        """IReactorTime API"""
        assert seconds == 0
        self.later.append(work)

    def work(self, name: str, pieces: int, seconds: float = 0.0) -> Iterator[None]:
        for number in range(pieces):
            self.now += seconds
            self.done.append(f"{name}{number}")
            yield

    def turn(self) -> list[str]:
        """What is done in one turn."""
        self.done.clear()
        now, self.later = self.later, []
        for work in now:
            work()
        return list(self.done)


def test_work_begins_in_a_later_turn() -> None:
    office = Office()
    office.slices.add(office.work("a", 3))
    assert office.done == []
    assert office.turn() == ["a0", "a1", "a2"]
    assert office.later == []


def test_long_work_takes_many_turns_and_lets_short_work_pass() -> None:
    office = Office()
    office.slices.add(office.work("a", 5, SLICE_SECONDS / 2))
    assert office.turn() == ["a0", "a1"]
    office.slices.add(office.work("b", 1))
    assert office.turn() == ["a2", "b0", "a3"]
    assert office.turn() == ["a4"]
    assert office.later == []


def test_a_piece_may_be_longer_than_a_slice() -> None:
    office = Office()
    office.slices.add(office.work("a", 2, 2 * SLICE_SECONDS))
    assert office.turn() == ["a0"]
    assert office.turn() == ["a1"]
    assert office.turn() == []


def test_work_that_fails_is_logged_and_the_rest_goes_on(logged_failures: list[object]) -> None:
    def broken() -> Iterator[None]:
        yield
        raise RuntimeError("in the middle")

    office = Office()
    office.slices.add(broken())
    office.slices.add(office.work("a", 2))
    assert office.turn() == ["a0", "a1"]
    assert len(logged_failures) == 1
    logged_failures.clear()
