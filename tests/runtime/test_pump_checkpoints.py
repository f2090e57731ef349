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
from nsqtw.interfaces import IFreeingQueue, IStoppingQueue
from nsqtw.runtime.pump import PART_SECONDS, SAVE_SECONDS
from tests.runtime.harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_an_idle_topic_is_saved_again_while_its_queue_has_more_to_free(harness: Harness) -> None:
    @implementer(IFreeingQueue)
    class Freeing(type(harness.core.topic().log.queue)):  # type: ignore[misc]
        may_free = True
        may_free_later = True

    queue = harness.core.topic().log.queue
    queue.__class__ = Freeing
    harness.core.topic().touch()
    durable = []
    for is_last in (False, False, True):
        queue.may_free_later = not is_last
        harness.pump.wake()
        harness.reactor.advance(SAVE_SECONDS)
        save = harness.writer.finish()
        assert [name for name, _, _ in save.trims] == ["t"]
        durable.append(save.checkpoint.durable)
    assert durable == [False, True, True], "a power loss must not make a start count what was freed"
    harness.reactor.advance(2 * SAVE_SECONDS)
    assert harness.writer.checkpointer == []


@pytest.mark.parametrize("frees", [False, True])
def test_the_last_checkpoint_has_idle_topics_that_free_files_at_a_stop(harness: Harness, frees: bool) -> None:
    @implementer(IStoppingQueue)
    class Stopping(type(harness.core.topic().log.queue)):  # type: ignore[misc]
        def begin_stop(self) -> bool:
            return frees

    harness.core.topic().log.queue.__class__ = Stopping
    harness.pump.wake()
    harness.reactor.advance(SAVE_SECONDS)
    while harness.writer.checkpointer:
        harness.writer.finish()
        harness.turn()
    harness.pump.stop()
    save = harness.writer.finish()
    assert [name for name, _, _ in save.trims] == (["t"] if frees else [])
    assert save.checkpoint.durable == frees


def test_the_save_before_a_log_is_freed_is_synced_whatever_part_comes_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    @implementer(IFreeingQueue)
    class Freeing(type(harness.core.topic("a").log.queue)):  # type: ignore[misc]
        may_free = True
        may_free_later = True

    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    queue = harness.core.topic("a").log.queue
    queue.__class__ = Freeing
    harness.core.topic("a").touch()
    harness.core.topic("b").touch()
    checkpointer = []
    for _ in range(12):
        harness.pump.wake()
        harness.reactor.advance(PART_SECONDS)
        while harness.writer.checkpointer:
            save = harness.writer.finish()
            checkpointer.append(([name for name, _, _ in save.trims], save.checkpoint.durable))
        if len(checkpointer) > 3:
            queue.may_free_later = False
    harness.reactor.advance(SAVE_SECONDS)
    first = next(number for number, (names, _) in enumerate(checkpointer) if names == ["a"])
    assert all(durable == (names == ["a"]) for names, durable in checkpointer[first + 1 :] if names)
    assert ["b"] in [names for names, _ in checkpointer[first + 1 :]]


def test_changes_are_saved_about_once_a_second_and_one_save_at_a_time(harness: Harness) -> None:
    harness.core.reader()
    harness.pump.wake()
    harness.turn()
    assert len(harness.writer.checkpointer) == 1, "the first change is saved at once"
    harness.core.put(b"a")
    harness.pump.wake()
    harness.turn()
    harness.reactor.advance(5)
    assert len(harness.writer.checkpointer) == 1, "the first save is not done yet"
    harness.writer.finish()
    harness.turn()
    assert len(harness.writer.checkpointer) == 1
    harness.writer.finish()
    harness.core.put(b"b")
    harness.pump.wake()
    harness.turn()
    assert harness.writer.checkpointer == []
    harness.reactor.advance(SAVE_SECONDS)
    assert len(harness.writer.checkpointer) == 1


def publish_to_three(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three parts of a cut is being saved, in which no topic is new."""
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    for _ in range(2):
        while harness.writer.checkpointer:
            harness.writer.finish()
            harness.reactor.advance(SAVE_SECONDS)
        for name in "abc":
            harness.core.put(b"x", topic=name)
        harness.pump.wake()
        harness.turn()


def test_a_cut_that_nobody_waits_for_leaves_time_between_its_parts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_to_three(harness, monkeypatch)
    saved = []
    for wait in (PART_SECONDS, PART_SECONDS, SAVE_SECONDS):
        saved += [topic.name for topic in harness.writer.finish().checkpoint.topics]
        harness.core.put(b"later", topic="a")
        harness.pump.wake()
        harness.turn()
        harness.reactor.advance(wait * 0.9)
        assert harness.writer.checkpointer == []
        harness.reactor.advance(wait * 0.2)
    saved += [topic.name for topic in harness.writer.finish().checkpoint.topics]
    assert saved == ["a", "b", "c", "a"]


def test_the_parts_of_a_cut_that_somebody_waits_for_follow_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_to_three(harness, monkeypatch)
    harness.writer.finish()
    harness.turn()
    assert harness.writer.checkpointer == []
    answers: list[BackendError | None] = []
    harness.broker.checkpointer.ask(answers.append)
    harness.pump.wake()
    while not answers:
        harness.turn()
        harness.writer.finish()
    assert answers == [None]


def test_who_waits_for_a_save_gets_it_at_once_and_the_error_if_it_fails(harness: Harness) -> None:
    harness.core.topic()
    harness.pump.wake()
    harness.turn()
    harness.writer.finish()
    answers: list[Exception | None] = []
    harness.broker.checkpointer.ask(answers.append)
    harness.pump.wake()
    harness.turn()
    harness.writer.finish(BackendError("no space"))
    assert [str(answer) for answer in answers] == ["no space"]
    assert str(harness.broker.health) == "NOK - no space"


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
    harness: Harness, breaking: Breaking
) -> None:
    harness.core.topic()
    answers: list[Exception | None] = []
    with breaking.times(1):
        harness.broker.checkpointer.ask(answers.append)
        harness.pump.wake()
        for _ in range(5):
            harness.turn()
        harness.reactor.advance(SAVE_SECONDS / 2)
        harness.broker.checkpointer.ask(answers.append)
        harness.pump.wake()
        harness.turn()
    assert (answers, harness.writer.checkpointer) == ([], [])
    harness.reactor.advance(SAVE_SECONDS / 2)
    harness.writer.finish()
    assert answers == [None, None]
    harness.broker.checkpointer.ask(answers.append)
    harness.pump.wake()
    harness.turn()
    assert len(harness.writer.checkpointer) == 1, "it is as if nothing had been"


@pytest.mark.plain  # breaks what the pump calls
def test_one_that_goes_on_breaking_is_tried_each_second(harness: Harness, breaking: Breaking) -> None:
    harness.core.topic()
    with breaking.times(3):
        harness.pump.wake()
        harness.turn()
        harness.reactor.pump([0.01] * 250)


@pytest.mark.plain  # breaks what the pump calls
def test_stopping_ends_when_a_save_breaks_before_it_has_begun(harness: Harness, breaking: Breaking) -> None:
    stopped: list[None] = []
    harness.core.topic()
    with breaking.times(2):
        harness.pump.wake()
        harness.turn()
        harness.pump.stop().addCallback(stopped.append)
    assert stopped == [None]
