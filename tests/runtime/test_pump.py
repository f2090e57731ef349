"""The end of a turn: order, one timer, flights, and a stop that waits for all of it."""

from __future__ import annotations

import pytest
from twisted.logger import LogEvent

from nsqtw.core.broker import Broker
from nsqtw.errors import BackendError
from nsqtw.runtime.flushable import Flushable
from nsqtw.runtime.pump import COMMIT_BYTES, SAVE_SECONDS, STOP_ATTEMPTS
from tests.runtime.harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()


class Recorder:
    def __init__(self, events: list[str]) -> None:
        self.events = events

    def flush(self, now: float) -> None:
        self.events.append("write")


class NotedRecorder(Flushable):
    """Says its name when it writes, and when it is ended."""

    def __init__(self, events: list[str], name: str, *, is_broken: bool = False) -> None:
        self.events, self.name, self.is_broken = events, name, is_broken

    def flush(self, now: float) -> None:
        if self.is_broken:
            raise ZeroDivisionError
        self.events.append(self.name)

    def abort(self) -> None:
        self.events.append(f"{self.name} ended")


def test_what_changes_often_writes_once_a_turn_and_what_is_noted_first(harness: Harness) -> None:
    events: list[str] = []
    one, other, third = NotedRecorder(events, "one"), NotedRecorder(events, "other"), Recorder(events)
    for _ in range(2):
        for connection in (third, one, other):
            harness.pump.changed(connection)
        harness.pump.received(one, 1)
        harness.turn()
        assert events == ["one", "other", "write"]
        events.clear()


def test_what_is_given_messages_writes_before_what_was_answered(harness: Harness) -> None:
    events: list[str] = []
    answered, served = NotedRecorder(events, "answered"), NotedRecorder(events, "served")
    harness.core.reader().consumer.deliver = lambda frames: harness.pump.changed(served)
    harness.core.topic().put([b"a"], 0, lambda error: harness.pump.changed(answered))
    harness.pump.wake()
    harness.turn()
    assert events == ["served", "answered"]


def test_a_noted_one_that_fails_to_write_ends_and_the_others_write(
    harness: Harness, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []
    harness.pump.changed(NotedRecorder(events, "broken", is_broken=True))
    harness.pump.changed(NotedRecorder(events, "other"))
    harness.turn()
    assert events == ["broken ended", "other"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_what_changes_while_it_writes_writes_again(harness: Harness) -> None:
    events: list[str] = []

    class Twice(NotedRecorder):
        def flush(self, now: float) -> None:
            super().flush(now)
            if len(self.events) == 1:
                harness.pump.changed(self)

    harness.pump.changed(Twice(events, "one"))
    harness.turn()
    assert events == ["one", "one"]


def test_many_wakes_are_one_turn_in_the_order_commit_release_serve_write(harness: Harness) -> None:
    events: list[str] = []
    reader = harness.core.reader()
    reader.consumer.deliver = lambda frames: events.append("serve")
    harness.core.topic().put([b"a"], 0, lambda error: events.append("answer"))
    for _ in range(10):
        harness.pump.wake()
    harness.pump.changed(Recorder(events))
    harness.turn()
    assert events == ["answer", "serve", "write"]


def test_calls_before_answers_run_once_before_the_commit_of_their_turn(
    harness: Harness, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    for call in (fail, lambda: events.append("call")):
        harness.pump.before_answers(call)
    harness.core.topic().put([b"a"], 0, lambda error: events.append("answer"))
    harness.turn()
    harness.turn()
    assert events == ["call", "answer"]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_calls_before_answers_run_before_a_commit_within_a_turn(harness: Harness) -> None:
    events: list[str] = []
    harness.pump.before_answers(lambda: events.append("call"))
    harness.core.topic().put([b"a"], 0, lambda error: events.append("answer"))
    harness.pump.on_read(COMMIT_BYTES + 1)
    assert events == ["call", "answer"]


def test_a_connection_that_fails_to_write_ends_and_the_others_write(
    harness: Harness, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []

    class Broken(Recorder):
        def flush(self, now: float) -> None:
            raise ZeroDivisionError

        def abort(self) -> None:
            events.append("abort")

    harness.pump.changed(Broken(events))
    harness.pump.changed(Recorder(events))
    harness.turn()
    assert events == ["abort", "write"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    harness.pump.changed(Recorder(events))
    harness.turn()
    assert events[2:] == ["write"]


def test_one_that_cannot_be_ended_keeps_nobody_from_writing(harness: Harness, logged_failures: list[LogEvent]) -> None:
    events: list[str] = []

    class Hopeless(Recorder):
        def flush(self, now: float) -> None:
            raise ZeroDivisionError

        def abort(self) -> None:
            raise ZeroDivisionError

    harness.pump.changed(Hopeless(events))
    harness.pump.changed(Recorder(events))
    harness.turn()
    assert events == ["write"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError] * 2
    logged_failures.clear()


@pytest.mark.plain  # breaks what the pump calls
def test_a_turn_that_breaks_is_followed_by_another(
    harness: Harness, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fail(broker: Broker, now: float) -> float | None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(Broker, "tick", fail)
        harness.pump.changed(Recorder(events))
        harness.turn()
    assert (events, len(logged_failures)) == ([], 1)
    logged_failures.clear()
    harness.reactor.advance(SAVE_SECONDS)
    harness.turn()
    assert events == ["write"]


@pytest.mark.plain  # breaks what the pump calls
def test_who_was_answered_before_a_turn_broke_is_written_to_in_the_next(
    harness: Harness, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fail(broker: Broker, now: float) -> bool:
        raise ZeroDivisionError

    harness.core.reader()
    harness.core.topic().put([b"a"], 0, lambda error: harness.pump.changed(Recorder(events)))
    harness.pump.wake()
    with monkeypatch.context() as broken:
        broken.setattr(Broker, "serve", fail)
        harness.turn()
    assert (events, len(logged_failures)) == ([], 1)
    logged_failures.clear()
    harness.reactor.advance(SAVE_SECONDS)
    harness.turn()
    assert events == ["write"]


def test_a_turn_that_reads_much_commits_in_between(harness: Harness) -> None:
    answers: list[Exception | None] = []
    harness.core.topic().put([b"a"], 0, answers.append)
    harness.pump.on_read(COMMIT_BYTES)
    assert answers == []
    harness.pump.on_read(1)
    assert answers == [None]


def test_the_timer_is_set_to_what_is_due_next(harness: Harness) -> None:
    reader = harness.core.reader()
    harness.core.put(b"a")
    harness.pump.wake()
    harness.turn()
    reader.channel.requeue(reader.consumer, next(reader.consumer.in_flight.items())[0], 5.0, harness.pump.now())
    reader.frames.clear()
    harness.pump.wake()
    harness.turn()
    harness.reactor.advance(4.9)
    assert reader.frames == []
    harness.reactor.advance(0.2)
    assert len(reader.frames) == 1


def test_stopping_waits_for_the_last_save(harness: Harness) -> None:
    harness.core.reader()
    harness.pump.wake()
    harness.turn()
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    assert stopped == []
    harness.writer.finish()
    assert stopped == [], "what was being saved when the stop came is not the end of it"
    harness.turn()
    harness.writer.finish()
    assert stopped == [None]


def test_stopping_ends_when_saving_fails(harness: Harness) -> None:
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    for _ in range(STOP_ATTEMPTS):
        assert stopped == []
        harness.writer.finish(BackendError("no space"))
    assert stopped == [None]


def test_stopping_tries_again_when_saving_fails_once(harness: Harness) -> None:
    reader = harness.core.reader(ready=1)
    harness.core.put(b"a")
    harness.pump.wake()
    harness.turn()
    while harness.writer.checkpointer:
        harness.writer.finish()
        harness.turn()
    reader.channel.finish(reader.consumer, [next(reader.consumer.in_flight.items())[0]], harness.pump.now())
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    harness.writer.finish(BackendError("EIO"))
    assert stopped == []
    (topic,) = harness.writer.finish().checkpoint.topics
    assert stopped == [None]
    (cursor,) = topic.cursors
    assert (cursor.next, cursor.first_deliveries) == (topic.end, [])


def test_one_flight_is_out_at_a_time_and_its_messages_come_when_it_lands(harness: Harness) -> None:
    harness.core.topic().durability = "fsync"
    answers: list[Exception | None] = []
    for body in (b"a", b"b"):
        harness.core.topic().put([body], 0, answers.append)
        harness.pump.wake()
        harness.turn()
    assert (len(harness.writer.group_commit), answers) == (1, [])
    harness.writer.land()
    assert answers == [None]
    harness.turn()
    harness.writer.land()
    harness.turn()
    assert (harness.writer.group_commit, answers) == ([], [None, None])


def test_stopping_waits_for_flights(harness: Harness) -> None:
    harness.core.topic().durability = "fsync"
    answers: list[Exception | None] = []
    harness.core.topic().put([b"a"], 0, answers.append)
    harness.pump.wake()
    harness.turn()
    while harness.writer.checkpointer:
        harness.writer.finish()
    harness.core.topic().put([b"b"], 0, answers.append)
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    harness.writer.land()
    assert (harness.writer.checkpointer, stopped, answers) == ([], [], [None])
    harness.writer.land()
    assert (answers, stopped) == ([None, None], [])
    harness.writer.finish()
    assert stopped == [None]


@pytest.fixture
def without_threads(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Nothing can be given to the writer."""

    def fail(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(harness.writer, "save", fail)
    monkeypatch.setattr(harness.writer, "commit", fail)
    return harness


def test_a_save_that_cannot_be_given_away_has_failed_and_is_tried_again(
    without_threads: Harness, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    harness, answers = without_threads, list[Exception | None]()
    harness.core.topic()
    harness.broker.checkpointer.ask(answers.append)
    harness.pump.wake()
    for _ in range(5):
        harness.turn()
    assert [str(error) for error in answers] == ["can't start new thread"]
    assert len(logged_failures) == 1
    logged_failures.clear()
    monkeypatch.undo()
    monkeypatch.setattr(harness.pump, "now", lambda: harness.core.now + harness.reactor.seconds())
    harness.reactor.advance(SAVE_SECONDS)
    assert len(harness.writer.checkpointer) == 1


def test_a_batch_that_cannot_be_given_away_has_failed(
    without_threads: Harness, logged_failures: list[LogEvent]
) -> None:
    harness, answers = without_threads, list[Exception | None]()
    harness.core.topic().durability = "fsync"
    for _ in range(2):
        harness.core.topic().put([b"a"], 0, answers.append)
        harness.pump.wake()
        harness.turn()
        harness.turn()
    assert [str(error) for error in answers] == ["can't start new thread"] * 2
    logged_failures.clear()


def test_a_stop_ends_without_a_writer_or_where_the_end_of_a_save_breaks(
    without_threads: Harness, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    harness = without_threads
    harness.core.topic()

    def fail(*given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(harness.broker.metadata_sync), "written", fail)
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    assert stopped == [None]
    logged_failures.clear()


@pytest.mark.plain  # breaks what the pump calls
def test_a_stop_whose_flight_cannot_be_given_away_says_once_that_it_closes(
    without_threads: Harness, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    harness, answers, stops = without_threads, list[Exception | None](), list[float]()
    harness.core.topic().durability = "fsync"
    harness.core.topic().put([b"a"], 0, answers.append)
    stop = type(harness.broker).stop

    def noted(self: Broker, now: float) -> None:
        stops.append(now)
        stop(self, now)

    monkeypatch.setattr(type(harness.broker), "stop", noted)
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    assert (len(stops), stopped) == (1, [None])
    assert [str(error) for error in answers] == ["can't start new thread"]
    logged_failures.clear()


def test_a_save_that_was_on_its_way_does_not_end_a_stop_that_waits_for_a_flight(harness: Harness) -> None:
    """Else what class memory owes would never be stored."""
    answers: list[Exception | None] = []
    harness.core.topic("m").durability = "memory"
    harness.core.topic("m").put([b"late"], 0, answers.append)
    harness.core.topic().durability = "fsync"
    harness.core.topic().put([b"a"], 0, answers.append)
    harness.pump.wake()
    harness.turn()
    assert (len(harness.writer.checkpointer), len(harness.writer.group_commit)) == (1, 1)
    stopped: list[None] = []
    harness.pump.stop().addCallback(stopped.append)
    harness.writer.finish()
    assert stopped == []
    harness.writer.land()
    harness.turn()
    while harness.writer.checkpointer:
        harness.writer.finish()
        harness.turn()
    assert (answers, stopped) == ([None, None], [None])
    assert [segment.count for segment in harness.core.backend.queue("m").read(0, 1)] == [1]
