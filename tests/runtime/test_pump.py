"""The end of a turn: order, one timer, flights, and a stop that waits for all of it."""

from __future__ import annotations

import pytest
from twisted.logger import LogEvent

from nsqtw.core.broker import Broker
from nsqtw.errors import BackendError
from nsqtw.runtime.flushable import Flushable
from nsqtw.runtime.pump import COMMIT_BYTES, SAVE_SECONDS, STOP_ATTEMPTS
from tests.runtime.harness import House


@pytest.fixture
def house() -> House:
    return House()


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


def test_what_changes_often_writes_once_a_turn_and_what_is_noted_first(house: House) -> None:
    events: list[str] = []
    one, other, third = NotedRecorder(events, "one"), NotedRecorder(events, "other"), Recorder(events)
    for _ in range(2):
        for connection in (third, one, other):
            house.pump.changed(connection)
        house.pump.received(one, 1)
        house.turn()
        assert events == ["one", "other", "write"]
        events.clear()


def test_what_is_given_messages_writes_before_what_was_answered(house: House) -> None:
    events: list[str] = []
    answered, served = NotedRecorder(events, "answered"), NotedRecorder(events, "served")
    house.world.reader().consumer.deliver = lambda frames: house.pump.changed(served)
    house.world.topic().put([b"a"], 0, lambda error: house.pump.changed(answered))
    house.pump.wake()
    house.turn()
    assert events == ["served", "answered"]


def test_a_noted_one_that_fails_to_write_ends_and_the_others_write(
    house: House, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []
    house.pump.changed(NotedRecorder(events, "broken", is_broken=True))
    house.pump.changed(NotedRecorder(events, "other"))
    house.turn()
    assert events == ["broken ended", "other"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_what_changes_while_it_writes_writes_again(house: House) -> None:
    events: list[str] = []

    class Twice(NotedRecorder):
        def flush(self, now: float) -> None:
            super().flush(now)
            if len(self.events) == 1:
                house.pump.changed(self)

    house.pump.changed(Twice(events, "one"))
    house.turn()
    assert events == ["one", "one"]


def test_many_wakes_are_one_turn_in_the_order_commit_release_serve_write(house: House) -> None:
    events: list[str] = []
    reader = house.world.reader()
    reader.consumer.deliver = lambda frames: events.append("serve")
    house.world.topic().put([b"a"], 0, lambda error: events.append("answer"))
    for _ in range(10):
        house.pump.wake()
    house.pump.changed(Recorder(events))
    house.turn()
    assert events == ["answer", "serve", "write"]


def test_calls_before_answers_run_once_before_the_commit_of_their_turn(
    house: House, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    for call in (fail, lambda: events.append("call")):
        house.pump.before_answers(call)
    house.world.topic().put([b"a"], 0, lambda error: events.append("answer"))
    house.turn()
    house.turn()
    assert events == ["call", "answer"]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_calls_before_answers_run_before_a_commit_within_a_turn(house: House) -> None:
    events: list[str] = []
    house.pump.before_answers(lambda: events.append("call"))
    house.world.topic().put([b"a"], 0, lambda error: events.append("answer"))
    house.pump.took(COMMIT_BYTES + 1)
    assert events == ["call", "answer"]


def test_a_connection_that_fails_to_write_ends_and_the_others_write(
    house: House, logged_failures: list[LogEvent]
) -> None:
    events: list[str] = []

    class Broken(Recorder):
        def flush(self, now: float) -> None:
            raise ZeroDivisionError

        def abort(self) -> None:
            events.append("abort")

    house.pump.changed(Broken(events))
    house.pump.changed(Recorder(events))
    house.turn()
    assert events == ["abort", "write"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    house.pump.changed(Recorder(events))
    house.turn()
    assert events[2:] == ["write"]


def test_one_that_cannot_even_be_ended_keeps_nobody_from_writing(house: House, logged_failures: list[LogEvent]) -> None:
    events: list[str] = []

    class Hopeless(Recorder):
        def flush(self, now: float) -> None:
            raise ZeroDivisionError

        def abort(self) -> None:
            raise ZeroDivisionError

    house.pump.changed(Hopeless(events))
    house.pump.changed(Recorder(events))
    house.turn()
    assert events == ["write"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError] * 2
    logged_failures.clear()


@pytest.mark.plain  # breaks what the pump calls
def test_a_turn_that_breaks_is_followed_by_another(
    house: House, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fail(broker: Broker, now: float) -> float | None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(Broker, "tick", fail)
        house.pump.changed(Recorder(events))
        house.turn()
    assert (events, len(logged_failures)) == ([], 1)
    logged_failures.clear()
    house.reactor.advance(SAVE_SECONDS)
    house.turn()
    assert events == ["write"]


@pytest.mark.plain  # breaks what the pump calls
def test_who_was_answered_before_a_turn_broke_is_written_to_in_the_next(
    house: House, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fail(broker: Broker, now: float) -> bool:
        raise ZeroDivisionError

    house.world.reader()
    house.world.topic().put([b"a"], 0, lambda error: house.pump.changed(Recorder(events)))
    house.pump.wake()
    with monkeypatch.context() as broken:
        broken.setattr(Broker, "serve", fail)
        house.turn()
    assert (events, len(logged_failures)) == ([], 1)
    logged_failures.clear()
    house.reactor.advance(SAVE_SECONDS)
    house.turn()
    assert events == ["write"]


def test_a_turn_that_reads_much_commits_in_between(house: House) -> None:
    answers: list[Exception | None] = []
    house.world.topic().put([b"a"], 0, answers.append)
    house.pump.took(COMMIT_BYTES)
    assert answers == []
    house.pump.took(1)
    assert answers == [None]


def test_the_timer_is_set_to_what_is_due_next(house: House) -> None:
    reader = house.world.reader()
    house.world.put(b"a")
    house.pump.wake()
    house.turn()
    reader.channel.requeue(reader.consumer, next(reader.consumer.in_flight.items())[0], 5.0, house.pump.now())
    reader.frames.clear()
    house.pump.wake()
    house.turn()
    house.reactor.advance(4.9)
    assert reader.frames == []
    house.reactor.advance(0.2)
    assert len(reader.frames) == 1


def test_stopping_waits_for_the_last_save(house: House) -> None:
    house.world.reader()
    house.pump.wake()
    house.turn()
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    assert stopped == []
    house.writer.finish()
    assert stopped == [], "what was being saved when the stop came is not the end of it"
    house.turn()
    house.writer.finish()
    assert stopped == [None]


def test_stopping_ends_when_saving_fails(house: House) -> None:
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    for _ in range(STOP_ATTEMPTS):
        assert stopped == []
        house.writer.finish(BackendError("no space"))
    assert stopped == [None]


def test_stopping_tries_again_when_saving_fails_once(house: House) -> None:
    reader = house.world.reader(ready=1)
    house.world.put(b"a")
    house.pump.wake()
    house.turn()
    while house.writer.saves:
        house.writer.finish()
        house.turn()
    reader.channel.finish(reader.consumer, [next(reader.consumer.in_flight.items())[0]], house.pump.now())
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    house.writer.finish(BackendError("EIO"))
    assert stopped == []
    (topic,) = house.writer.finish().cut.topics
    assert stopped == [None]
    (cursor,) = topic.cursors
    assert (cursor.next, cursor.first_deliveries) == (topic.end, [])


def test_one_flight_is_out_at_a_time_and_its_messages_come_when_it_lands(house: House) -> None:
    house.world.topic().durability = "fsync"
    answers: list[Exception | None] = []
    for body in (b"a", b"b"):
        house.world.topic().put([body], 0, answers.append)
        house.pump.wake()
        house.turn()
    assert (len(house.writer.flights), answers) == (1, [])
    house.writer.land()
    assert answers == [None]
    house.turn()
    house.writer.land()
    house.turn()
    assert (house.writer.flights, answers) == ([], [None, None])


def test_stopping_waits_for_flights(house: House) -> None:
    house.world.topic().durability = "fsync"
    answers: list[Exception | None] = []
    house.world.topic().put([b"a"], 0, answers.append)
    house.pump.wake()
    house.turn()
    while house.writer.saves:
        house.writer.finish()
    house.world.topic().put([b"b"], 0, answers.append)
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    house.writer.land()
    assert (house.writer.saves, stopped, answers) == ([], [], [None])
    house.writer.land()
    assert (answers, stopped) == ([None, None], [])
    house.writer.finish()
    assert stopped == [None]


@pytest.fixture
def without_threads(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """Nothing can be given to the writer."""

    def fail(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(house.writer, "save", fail)
    monkeypatch.setattr(house.writer, "commit", fail)
    return house


def test_a_save_that_cannot_be_given_away_has_failed_and_is_tried_again(
    without_threads: House, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    house, answers = without_threads, list[Exception | None]()
    house.world.topic()
    house.broker.saves.ask(answers.append)
    house.pump.wake()
    for _ in range(5):
        house.turn()
    assert [str(error) for error in answers] == ["can't start new thread"]
    assert len(logged_failures) == 1
    logged_failures.clear()
    monkeypatch.undo()
    monkeypatch.setattr(house.pump, "now", lambda: house.world.now + house.reactor.seconds())
    house.reactor.advance(SAVE_SECONDS)
    assert len(house.writer.saves) == 1


def test_a_flight_that_cannot_be_given_away_has_failed(without_threads: House, logged_failures: list[LogEvent]) -> None:
    house, answers = without_threads, list[Exception | None]()
    house.world.topic().durability = "fsync"
    for _ in range(2):
        house.world.topic().put([b"a"], 0, answers.append)
        house.pump.wake()
        house.turn()
        house.turn()
    assert [str(error) for error in answers] == ["can't start new thread"] * 2
    logged_failures.clear()


def test_a_stop_ends_without_a_writer_or_where_the_end_of_a_save_breaks(
    without_threads: House, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    house = without_threads
    house.world.topic()

    def fail(*given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(house.broker.naming), "written", fail)
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    assert stopped == [None]
    logged_failures.clear()


@pytest.mark.plain  # breaks what the pump calls
def test_a_stop_whose_flight_cannot_be_given_away_says_once_that_it_closes(
    without_threads: House, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    house, answers, stops = without_threads, list[Exception | None](), list[float]()
    house.world.topic().durability = "fsync"
    house.world.topic().put([b"a"], 0, answers.append)
    stop = type(house.broker).stop

    def noted(self: Broker, now: float) -> None:
        stops.append(now)
        stop(self, now)

    monkeypatch.setattr(type(house.broker), "stop", noted)
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    assert (len(stops), stopped) == (1, [None])
    assert [str(error) for error in answers] == ["can't start new thread"]
    logged_failures.clear()


def test_a_save_that_was_on_its_way_does_not_end_a_stop_that_waits_for_a_flight(house: House) -> None:
    """Else what class memory owes would never be stored."""
    answers: list[Exception | None] = []
    house.world.topic("m").durability = "memory"
    house.world.topic("m").put([b"late"], 0, answers.append)
    house.world.topic().durability = "fsync"
    house.world.topic().put([b"a"], 0, answers.append)
    house.pump.wake()
    house.turn()
    assert (len(house.writer.saves), len(house.writer.flights)) == (1, 1)
    stopped: list[None] = []
    house.pump.stop().addCallback(stopped.append)
    house.writer.finish()
    assert stopped == []
    house.writer.land()
    house.turn()
    while house.writer.saves:
        house.writer.finish()
        house.turn()
    assert (answers, stopped) == ([None, None], [None])
    assert [segment.count for segment in house.world.backend.queue("m").read(0, 1)] == [1]
