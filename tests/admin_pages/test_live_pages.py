"""How many live pages there may be, and when each is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from nsqtw.admin.pages.live_pages import MAX_PAGES, MAX_PAGES_OF_USER, LivePages

STEP_SECONDS = 0.02


class BusyClock(Clock):
    """A clock that also advances by `spent`, the time that work takes."""

    spent = 0.0

    def seconds(self) -> float:
        return super().seconds() + self.spent


@attrs.define
class Bench:
    clock: BusyClock = attrs.field(factory=BusyClock)
    listeners: list[Callable[[], None]] = attrs.field(factory=list)
    made: list[str] = attrs.field(factory=list)
    sent: list[str] = attrs.field(factory=list)
    failures: list[BaseException] = attrs.field(factory=list)
    held: Deferred[None] | None = None
    live: LivePages = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        clock: Any = self.clock
        self.live = LivePages(clock, self._watch)

    def _watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def open(self, owner: str, name: str) -> Callable[[], None]:
        """Open a page, which is sent with each update; the function that closes it."""

        def update() -> None:
            self.clock.spent += STEP_SECONDS
            Deferred.fromCoroutine(self.live.shared(name, self._make(name))).addCallbacks(
                self.sent.append, lambda failure: self.failures.append(failure.value)
            )

        return self.live.watch_for(owner)(update)

    def _make(self, name: str) -> Callable[[], Any]:
        async def make() -> str:
            self.made.append(name)
            if self.held is not None:
                await self.held
            return name

        return make

    def end_round(self) -> None:
        for listener in list(self.listeners):
            listener()

    def settle(self) -> None:
        for _ in range(2 * MAX_PAGES_OF_USER):
            self.clock.advance(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_page_is_made_once_a_round_for_all_that_show_it(bench: Bench) -> None:
    for _ in range(3):
        bench.open("ann", "topics")
    bench.open("bob", "nodes")
    for number in (1, 2):
        bench.end_round()
        bench.settle()
        assert (bench.made, len(bench.sent)) == (["topics", "nodes"] * number, 4 * number)


def test_a_page_that_waits_for_an_answer_is_sent_to_all_that_wait(bench: Bench) -> None:
    bench.held = Deferred()
    for _ in range(3):
        bench.open("ann", "topics")
    bench.end_round()
    bench.settle()
    assert bench.sent == []
    bench.held.callback(None)
    assert (bench.made, bench.sent) == (["topics"], ["topics"] * 3)


def test_a_failure_is_that_of_all(bench: Bench) -> None:
    bench.held = Deferred()
    for _ in range(2):
        bench.open("ann", "topics")
    bench.end_round()
    bench.settle()
    bench.held.errback(ValueError("x"))
    assert [str(error) for error in bench.failures] == ["x", "x"]


def test_pages_are_made_a_few_a_turn_and_the_next_round_waits(bench: Bench) -> None:
    for number in range(10):
        bench.open("ann", str(number))
    found: list[list[str]] = []

    def other_work() -> None:
        found.append(list(bench.made))
        bench.end_round()

    bench.end_round()
    bench.clock.callLater(0, other_work)
    bench.settle()
    assert found == [["0"]]
    assert bench.made == [str(number) for number in range(10)]
    bench.end_round()
    bench.settle()
    assert len(bench.made) == 20


def test_pages_of_a_user_and_of_all_have_a_limit(bench: Bench) -> None:
    close = [bench.open("ann", "topics") for _ in range(MAX_PAGES_OF_USER)]
    assert not bench.live.has_room("ann")
    assert bench.live.has_room("bob")
    close += [bench.open(str(number), "topics") for number in range(MAX_PAGES - MAX_PAGES_OF_USER)]
    assert not bench.live.has_room("bob")
    for one in close:
        one()
    assert bench.live.has_room("ann") and bench.live.has_room("bob")
    assert bench.listeners == []
