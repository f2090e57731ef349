"""When the pump saves: about once a second, one at a time, at once when somebody waits, again when it broke."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.logger import LogEvent
from zope.interface import implementer

from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.checkpointer import Checkpointer
from nsqtw.errors import BackendError
from nsqtw.interfaces import IFreeingQueue
from nsqtw.runtime.pump import PART_SECONDS, SAVE_SECONDS
from tests.runtime.harness import House


@pytest.fixture
def house() -> House:
    return House()


def test_an_idle_topic_is_saved_again_while_its_queue_has_more_to_free(house: House) -> None:
    @implementer(IFreeingQueue)
    class Freeing(type(house.world.topic().log.queue)):  # type: ignore[misc]
        may_free = True
        may_free_later = True

    queue = house.world.topic().log.queue
    queue.__class__ = Freeing
    house.world.topic().touch()
    durable = []
    for is_last in (False, False, True):
        queue.may_free_later = not is_last
        house.pump.wake()
        house.reactor.advance(SAVE_SECONDS)
        save = house.writer.finish()
        assert [name for name, _, _ in save.trims] == ["t"]
        durable.append(save.cut.durable)
    assert durable == [False, True, True], "a power loss must not make a start count what was freed"
    house.reactor.advance(2 * SAVE_SECONDS)
    assert house.writer.saves == []


def test_the_save_before_a_log_is_freed_is_synced_whatever_part_comes_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    @implementer(IFreeingQueue)
    class Freeing(type(house.world.topic("a").log.queue)):  # type: ignore[misc]
        may_free = True
        may_free_later = True

    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    queue = house.world.topic("a").log.queue
    queue.__class__ = Freeing
    house.world.topic("a").touch()
    house.world.topic("b").touch()
    saves = []
    for _ in range(12):
        house.pump.wake()
        house.reactor.advance(PART_SECONDS)
        while house.writer.saves:
            save = house.writer.finish()
            saves.append(([name for name, _, _ in save.trims], save.cut.durable))
        if len(saves) > 3:
            queue.may_free_later = False
    house.reactor.advance(SAVE_SECONDS)
    first = next(number for number, (names, _) in enumerate(saves) if names == ["a"])
    assert all(durable == (names == ["a"]) for names, durable in saves[first + 1 :] if names)
    assert ["b"] in [names for names, _ in saves[first + 1 :]]


def test_changes_are_saved_about_once_a_second_and_one_save_at_a_time(house: House) -> None:
    house.world.reader()
    house.pump.wake()
    house.turn()
    assert len(house.writer.saves) == 1, "the first change is saved at once"
    house.world.put(b"a")
    house.pump.wake()
    house.turn()
    house.reactor.advance(5)
    assert len(house.writer.saves) == 1, "the first save is not done yet"
    house.writer.finish()
    house.turn()
    assert len(house.writer.saves) == 1
    house.writer.finish()
    house.world.put(b"b")
    house.pump.wake()
    house.turn()
    assert house.writer.saves == []
    house.reactor.advance(SAVE_SECONDS)
    assert len(house.writer.saves) == 1


def publish_to_three(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three parts of a cut is being saved, in which no topic is new."""
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    for _ in range(2):
        while house.writer.saves:
            house.writer.finish()
            house.reactor.advance(SAVE_SECONDS)
        for name in "abc":
            house.world.put(b"x", topic=name)
        house.pump.wake()
        house.turn()


def test_a_cut_that_nobody_waits_for_leaves_time_between_its_parts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_to_three(house, monkeypatch)
    saved = []
    for wait in (PART_SECONDS, PART_SECONDS, SAVE_SECONDS):
        saved += [topic.name for topic in house.writer.finish().cut.topics]
        house.world.put(b"later", topic="a")
        house.pump.wake()
        house.turn()
        house.reactor.advance(wait * 0.9)
        assert house.writer.saves == []
        house.reactor.advance(wait * 0.2)
    saved += [topic.name for topic in house.writer.finish().cut.topics]
    assert saved == ["a", "b", "c", "a"]


def test_the_parts_of_a_cut_that_somebody_waits_for_follow_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_to_three(house, monkeypatch)
    house.writer.finish()
    house.turn()
    assert house.writer.saves == []
    answers: list[BackendError | None] = []
    house.broker.saves.ask(answers.append)
    house.pump.wake()
    while not answers:
        house.turn()
        house.writer.finish()
    assert answers == [None]


def test_who_waits_for_a_save_gets_it_at_once_and_the_error_if_it_fails(house: House) -> None:
    house.world.topic()
    house.pump.wake()
    house.turn()
    house.writer.finish()
    answers: list[Exception | None] = []
    house.broker.saves.ask(answers.append)
    house.pump.wake()
    house.turn()
    house.writer.finish(BackendError("no space"))
    assert [str(answer) for answer in answers] == ["no space"]
    assert str(house.broker.health) == "NOK - no space"


class Breaking:
    """What becomes of a pump whose broker cannot say what is to be saved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: list[LogEvent]) -> None:
        self._monkeypatch = monkeypatch
        self._failures = failures

    @contextmanager
    def times(self, count: int) -> Iterator[None]:
        """It is tried so often, and fails and is logged each time."""
        tried = 0

        def fail(broker: Broker, now: float) -> CheckpointJob:
            nonlocal tried
            tried += 1
            raise ZeroDivisionError

        with self._monkeypatch.context() as broken:
            broken.setattr(Checkpointer, "begin", fail)
            yield
        assert tried == count
        assert [event["log_failure"].type for event in self._failures] == [ZeroDivisionError] * count
        self._failures.clear()


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]) -> Breaking:
    return Breaking(monkeypatch, logged_failures)


@pytest.mark.plain  # breaks what the pump calls
def test_a_save_that_breaks_before_it_has_begun_is_tried_again_when_it_is_time(
    house: House, breaking: Breaking
) -> None:
    house.world.topic()
    answers: list[Exception | None] = []
    with breaking.times(1):
        house.broker.saves.ask(answers.append)
        house.pump.wake()
        for _ in range(5):
            house.turn()
        house.reactor.advance(SAVE_SECONDS / 2)
        house.broker.saves.ask(answers.append)
        house.pump.wake()
        house.turn()
    assert (answers, house.writer.saves) == ([], [])
    house.reactor.advance(SAVE_SECONDS / 2)
    house.writer.finish()
    assert answers == [None, None]
    house.broker.saves.ask(answers.append)
    house.pump.wake()
    house.turn()
    assert len(house.writer.saves) == 1, "it is as if nothing had been"


@pytest.mark.plain  # breaks what the pump calls
def test_one_that_goes_on_breaking_is_tried_each_second(house: House, breaking: Breaking) -> None:
    house.world.topic()
    with breaking.times(3):
        house.pump.wake()
        house.turn()
        house.reactor.pump([0.01] * 250)


@pytest.mark.plain  # breaks what the pump calls
def test_stopping_ends_when_a_save_breaks_before_it_has_begun(house: House, breaking: Breaking) -> None:
    stopped: list[None] = []
    house.world.topic()
    with breaking.times(2):
        house.pump.wake()
        house.turn()
        house.pump.stop().addCallback(stopped.append)
    assert stopped == [None]
