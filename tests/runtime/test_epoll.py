"""The daemon's reactor: a turn reads everything, then has an end, and is Twisted's in all else."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionLost
from twisted.logger import LogEvent

from nsqtw.runtime import epoll as reactor_module
from nsqtw.runtime.epoll import TurnReactor
from nsqtw.runtime.turns import end_of_turn
from tests.reactors import close_reactor
from tests.wire import ANSWER_SECONDS


class End(FileDescriptor):
    """One end of a pair of sockets: what it reads and how it ends is written down."""

    def __init__(self, reactor: TurnReactor, name: str, notes: list[str]) -> None:
        super().__init__(reactor)
        self.socket, self.other = socket.socketpair()
        self.name, self.notes = name, notes
        self.then: Callable[[], object] = lambda: None
        self.startReading()  # type: ignore[no-untyped-call]

    def fileno(self) -> int:
        return self.socket.fileno()

    def doRead(self) -> object:
        self.notes.append(f"{self.name} reads {self.socket.recv(100).decode()}")
        return self.then()

    def doWrite(self) -> None:
        self.notes.append(f"{self.name} writes")
        self.stopWriting()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any) -> None:
        self.notes.append(f"{self.name} ends: {reason.type.__name__}")
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self.socket.close()

    def readConnectionLost(self, reason: Any) -> None:
        self.connectionLost(reason)


class Harness:
    """A reactor that is run turn by turn, and two connections."""

    def __init__(self) -> None:
        self.reactor = TurnReactor()
        self.notes: list[str] = []
        self.one, self.two = End(self.reactor, "one", self.notes), End(self.reactor, "two", self.notes)

    def turn(self) -> list[str]:
        """What happened in one turn. It does not wait, unless the reactor would, which is no turn then."""
        self.notes.clear()
        self.reactor.runUntilCurrent()
        self.reactor.doPoll(0.0)
        return sorted(self.notes[:2]) + self.notes[2:]

    def record(self, text: str) -> Callable[[], None]:
        return lambda: self.notes.append(text)

    def close(self) -> None:
        for end in (self.one, self.two):
            end.socket.close()
            end.other.close()
        close_reactor(self.reactor)


@pytest.fixture
def harness() -> Iterator[Harness]:
    one = Harness()
    yield one
    one.close()


def test_a_turn_ends_when_everything_was_read(harness: Harness) -> None:
    at_end = end_of_turn(harness.reactor)
    harness.one.then = lambda: at_end(harness.record("end"))
    harness.one.other.send(b"1")
    harness.two.other.send(b"2")
    assert harness.turn() == ["one reads 1", "two reads 2", "end"]
    assert harness.turn() == []


def test_a_turn_in_which_several_were_read_takes_what_came_meanwhile_once_more(harness: Harness) -> None:
    at_end = harness.reactor.at_end

    def read() -> None:
        if len(harness.notes) == 1:
            at_end(harness.record("end"))
        harness.one.other.send(b"m")

    harness.one.then = harness.two.then = read
    harness.one.other.send(b"1")
    harness.two.other.send(b"2")
    assert harness.turn() == ["one reads 1", "two reads 2", "one reads mm", "end"]
    assert harness.turn() == ["end", "one reads m"], "one alone is not worth another look"
    assert harness.turn() == ["end", "one reads m"]


def test_what_an_end_asks_for_waits_for_the_next_turn_which_reads_first(harness: Harness) -> None:
    at_end = harness.reactor.at_end

    def end() -> None:
        harness.notes.append("end")
        at_end(harness.record("next end"))
        harness.one.other.send(b"1")
        harness.two.other.send(b"2")

    at_end(end)
    assert harness.turn() == ["end"]
    assert harness.turn() == ["one reads 1", "two reads 2", "next end"]


def test_a_timed_call_may_ask_for_an_end(harness: Harness) -> None:
    harness.reactor.callLater(0, lambda: harness.reactor.at_end(harness.record("end")))
    assert harness.turn() == ["end"]


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_end_that_fails_is_logged_and_the_others_are_done(
    harness: Harness, logged_failures: list[LogEvent], error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    harness.reactor.at_end(fail)
    harness.reactor.at_end(harness.record("end"))
    assert harness.turn() == ["end"]
    assert [event["log_failure"].type for event in logged_failures] == [error]
    logged_failures.clear()


def test_a_descriptor_that_fails_ends_alone(harness: Harness, logged_failures: list[LogEvent]) -> None:
    harness.one.then = lambda: 1 // 0
    harness.one.other.send(b"1")
    assert harness.turn() == ["one ends: ZeroDivisionError", "one reads 1"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    harness.two.other.send(b"2")
    assert harness.turn() == ["two reads 2"]


def test_a_descriptor_whose_end_fails_ends_alone(harness: Harness, logged_failures: list[LogEvent]) -> None:
    def fail(reason: object = None) -> None:
        raise ZeroDivisionError

    for end in (harness.one, harness.two):
        end.then = end.connectionLost = fail  # type: ignore[method-assign]
        end.other.send(b"1")
    harness.reactor.at_end(harness.record("end"))
    assert harness.turn() == ["one reads 1", "two reads 1", "end"]
    assert len(logged_failures) == 4
    logged_failures.clear()
    assert harness.turn() == []


def test_a_descriptor_may_say_that_it_is_done(harness: Harness) -> None:
    harness.one.then = ConnectionLost
    harness.one.other.send(b"1")
    assert harness.turn() == ["one ends: ConnectionLost", "one reads 1"]
    assert harness.turn() == []


def test_one_that_was_ended_by_another_in_the_same_turn_is_not_read_any_more(harness: Harness) -> None:
    def end(other: End) -> Callable[[], None]:
        return lambda: other.connectionLost(ConnectionLostReason)

    harness.one.then, harness.two.then = end(harness.two), end(harness.one)
    harness.one.other.send(b"1")
    harness.two.other.send(b"1")
    assert len([record for record in harness.turn() if "reads" in record]) == 1
    assert harness.turn() == []


def test_writing_and_the_other_sides_end_are_as_in_twisted(harness: Harness) -> None:
    harness.one.startWriting()  # type: ignore[no-untyped-call]
    assert harness.turn() == ["one writes"]
    assert harness.turn() == []
    harness.two.stopReading()  # type: ignore[no-untyped-call]
    harness.two.startWriting()  # type: ignore[no-untyped-call]
    harness.two.other.close()
    assert harness.turn() == ["two ends: ConnectionLost"]


class ConnectionLostReason:
    type = ConnectionLost


@pytest.mark.parametrize(("count", "asks"), [(0.5, False), (1.0, False), (1.5, True), (2.0, True)])
def test_it_asks_instead_of_sleeping_only_with_more_than_one_core(
    count: float, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reactor_module, "cpu_quota", lambda: count)
    assert TurnReactor()._events._may_spin is asks


def test_a_loop_does_what_is_due_and_what_others_ask_for_and_ends(logged_failures: list[LogEvent]) -> None:
    """A whole loop, real time: timed calls, one of them cancelled and one that asks for another, threads, ends."""
    reactor, notes = TurnReactor(), list[str]()

    def timed() -> None:
        notes.append("timed")
        reactor.at_end(lambda: notes.append("end"))
        reactor.callInThread(lambda: reactor.callFromThread(threaded))

    def threaded() -> None:
        notes.append("threaded")
        reactor.callLater(0, lambda: 1 // 0)
        reactor.callLater(0.002, reactor.stop)

    reactor.callLater(0.001, timed)
    reactor.callLater(0.001, notes.append, "cancelled").cancel()
    reactor.run(installSignalHandlers=False)
    assert notes == ["timed", "end", "threaded"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


class Scripted(TurnReactor):
    """Notes how long each poll may wait, and ends after so many."""

    def __init__(self, polls: int) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []
        self.left = polls

    def doPoll(self, timeout: float | None) -> None:
        if self.running:
            self.timeouts.append(timeout)
            self.left -= 1
            if not self.left:
                self.stop()
        super().doPoll(0.0)


def test_a_loop_waits_for_nothing_while_an_end_asks_for_another() -> None:
    """Real polls: one that waited would wait for the timer, which ends it."""
    reactor, ends = TurnReactor(), list[str]()
    reactor.callLater(ANSWER_SECONDS, reactor.stop)

    def end() -> None:
        ends.append("end")
        if len(ends) == 4:
            reactor.stop()
        else:
            reactor.at_end(end)

    reactor.callWhenRunning(end)
    reactor.run(installSignalHandlers=False)
    assert ends == ["end"] * 4


def test_a_poll_waits_for_the_next_timer_and_never_too_long_for_epoll() -> None:
    reactor = Scripted(3)
    reactor.callLater(60 * 86400, int)
    reactor.run(installSignalHandlers=False)
    assert reactor.timeouts[1:] == [1000.0] * 2
    reactor = Scripted(3)
    reactor.callLater(5, int)
    reactor.run(installSignalHandlers=False)
    assert all(timeout is not None and 4 < timeout <= 5 for timeout in reactor.timeouts[1:])


def test_a_turn_that_breaks_is_logged_and_the_next_one_comes(
    logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    reactor = TurnReactor()
    polls: list[float | None] = []

    def poll(timeout: float | None) -> None:
        polls.append(timeout)
        if len(polls) == 1:
            raise OSError("no poll")
        if len(polls) == 2:
            reactor.stop()

    monkeypatch.setattr(reactor, "doPoll", poll)
    reactor.run(installSignalHandlers=False)
    assert len(polls) >= 2
    assert [event["log_failure"].type for event in logged_failures] == [OSError]
    logged_failures.clear()


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("", "TurnReactor"),
        ("from twisted.internet import pollreactor; pollreactor.install()", "PollReactor"),
    ],
)
def test_a_daemon_has_it_unless_the_process_has_another(before: str, kind: str) -> None:
    program = f"{before}\nfrom nsqtw.daemon.process import daemon_reactor\nprint(type(daemon_reactor()).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS
    )
    assert done.stdout.strip() == kind
