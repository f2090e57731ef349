"""The connection to one nsqlookupd, made again and again. The test owns time and what becomes of each attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from nsqtw.discovery.peer import CONNECT_SECONDS, MAX_RETRY_SECONDS, REFUSED_SECONDS, LookupdPeer
from nsqtw.discovery.protocol import ANSWER_SECONDS, PING_SECONDS, IdentifyPayload, Lookupd, LookupdProtocol, Name
from nsqtw.runtime.waiting import ReadyEvent, RetryDelays, in_time
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Log

ITSELF = sized(json.dumps({"broadcast_address": "l", "http_port": 4161}).encode())
RETRY_SECONDS = 0.25


def quiet(level: str, text: str, /, **fields: object) -> None:
    """The dialogue's log is its own test's business."""


class Attempt:
    """One attempt to connect, and the connection that came of it."""

    def __init__(self, factory: Any) -> None:
        self.is_cancelled = False
        self.outcome: Deferred[Any] = Deferred(self._cancel)
        self.transport = StringTransport()
        self._factory = factory

    def _cancel(self, _: object) -> None:
        self.is_cancelled = True

    def succeed(self) -> None:
        self.protocol = self._factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        self.outcome.callback(self.protocol)

    def fail(self) -> None:
        self.outcome.errback(ConnectionRefusedError())

    def say(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def lose(self, reason: type[Exception] = ConnectionDone) -> None:
        self.protocol.connectionLost(Failure(reason()))

    @property
    def is_closed(self) -> bool:
        return self.transport.disconnecting or self.transport.disconnected

    def heard(self) -> list[str]:
        """The commands that were written since the last time, without the introduction."""
        data = self.transport.value()
        self.transport.clear()
        return data[data.rfind(b"}") + 1 :].decode().splitlines()


class Harness:
    """A link, started, and all its attempts. By chance it always waits as long as it may."""

    def __init__(self, *names: str) -> None:
        self.clock = Clock()
        self.names = [Name(name) for name in names]
        self.attempts: list[Attempt] = []
        self.peer = LookupdPeer(
            self.clock,
            "l:4160",
            self._connect,
            self._speak,
            lambda: self.names,
            lambda: 1.0,
            lambda call: self.clock.callLater(0, call),
        )
        self.peer.start()

    def _connect(self, factory: Any) -> Deferred[Any]:
        self.attempts.append(Attempt(factory))
        return self.attempts[-1].outcome

    def _speak(self, names: Iterable[Name], now: float) -> LookupdProtocol:
        identify_payload = IdentifyPayload("b", "h", 1, 2, "", "", "1.3.0")
        return LookupdProtocol("l:4160", identify_payload, names, quiet, most_answer_bytes=1000, now=now)

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    def meet(self) -> Attempt:
        """The present attempt succeeds, and nsqlookupd answers."""
        self.last.succeed()
        self.last.say(ITSELF)
        return self.last


def test_it_connects_and_tells() -> None:
    with Log() as lines:
        harness = Harness("t")
        harness.last.succeed()
    assert lines == ["info: LOOKUP(l:4160): adding peer", "info: LOOKUP connecting to l:4160"]
    assert harness.peer.lookupd is None
    assert harness.last.transport.value().startswith(b"  V1IDENTIFY\n")
    harness.last.say(ITSELF)
    assert harness.peer.lookupd == Lookupd(http_port=4161, broadcast_address="l")
    assert harness.last.heard() == ["REGISTER t"]


def test_what_comes_and_goes_in_one_turn_is_written_at_once_at_its_end() -> None:
    harness = Harness()
    attempt = harness.meet()
    attempt.heard()
    harness.peer.on_created(Name("t"))
    harness.peer.on_created(Name("t", "c"))
    harness.peer.on_created(Name("u"))
    harness.peer.on_deleted(Name("u"))
    assert attempt.heard() == []
    harness.clock.advance(0)
    assert attempt.heard() == ["REGISTER t", "REGISTER t c"]


class SocketTransport(StringTransport):
    """Has a buffer, as Twisted's transports do, which it writes to the socket when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.has_no_delay = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.has_no_delay = enabled

    def doWrite(self) -> None:
        self.written += self.value()
        self.clear()


def test_commands_reach_the_socket_without_another_turn_of_the_reactor() -> None:
    harness = Harness("t")
    transport = harness.last.transport = SocketTransport()
    harness.meet()
    assert transport.has_no_delay
    assert transport.written.endswith(b"REGISTER t\n")


def test_it_pings_and_ends_a_connection_without_an_answer() -> None:
    harness = Harness()
    attempt = harness.meet()
    attempt.heard()
    harness.clock.advance(PING_SECONDS)
    assert attempt.heard() == ["PING"]
    attempt.say(sized(b"OK"))
    harness.clock.advance(PING_SECONDS)
    assert attempt.heard() == ["PING"]
    harness.clock.advance(ANSWER_SECONDS)
    assert attempt.is_closed
    with Log() as lines:
        attempt.lose(ConnectionLost)
    assert lines == ["error: LOOKUPD(l:4160): PING - no answer in time"]


def test_a_new_connection_is_told_everything_again() -> None:
    harness = Harness("t")
    harness.meet()
    harness.names = [Name("t", "c"), Name("u")]
    with Log() as lines:
        harness.last.lose()
    assert lines == ["error: LOOKUPD(l:4160): EOF"]
    assert harness.peer.lookupd is None
    harness.peer.on_created(Name("v"))
    harness.clock.advance(RETRY_SECONDS)
    assert len(harness.attempts) == 2
    assert harness.meet().heard() == ["REGISTER t c", "REGISTER u"]


def test_it_waits_longer_after_each_failure_and_the_shortest_time_again_when_it_has_gone_well() -> None:
    harness = Harness()
    for wait in (0.25, 0.5, 1, 2, 4, 8, 15, 15):
        harness.last.fail()
        harness.clock.advance(wait - 0.01)
        count = len(harness.attempts)
        harness.clock.advance(0.01)
        assert len(harness.attempts) == count + 1
    harness.meet()
    harness.last.lose()
    harness.clock.advance(RETRY_SECONDS)
    assert harness.last.is_closed is False
    harness.clock.advance(MAX_RETRY_SECONDS)
    harness.meet()
    harness.clock.advance(PING_SECONDS)
    harness.last.say(sized(b"OK"))
    harness.last.lose()
    count = len(harness.attempts)
    harness.clock.advance(RETRY_SECONDS)
    assert len(harness.attempts) == count + 1


def test_chance_takes_up_to_half_of_the_wait() -> None:
    backoff = RetryDelays(1.0, 4.0, lambda: 0.0)
    assert [backoff.failed() for _ in range(4)] == [0.5, 1.0, 2.0, 2.0]


def test_an_attempt_has_a_second() -> None:
    harness = Harness()
    with Log() as lines:
        harness.clock.advance(CONNECT_SECONDS)
    assert harness.last.is_cancelled
    assert lines == ["error: LOOKUPD(l:4160): i/o timeout"]
    harness.clock.advance(RETRY_SECONDS)
    assert len(harness.attempts) == 2


@pytest.mark.parametrize("garbage", [b"\xff" * 8, sized(b"nonsense"), ITSELF + sized(b"OK") * 2])
def test_garbage_ends_the_connection_and_only_that(garbage: bytes) -> None:
    harness = Harness("t")
    harness.last.succeed()
    harness.last.say(garbage)
    assert harness.last.is_closed
    harness.last.say(b"more of it")
    harness.last.lose(ConnectionLost)
    harness.clock.advance(RETRY_SECONDS)
    assert harness.meet().heard() == ["REGISTER t"]


def test_a_refused_name_does_not_cost_the_others_their_place() -> None:
    harness = Harness("bad", "good")
    harness.meet()
    harness.last.say(sized(b"E_FULL"))
    harness.last.lose()
    harness.clock.advance(RETRY_SECONDS)
    attempt = harness.meet()
    assert attempt.heard() == ["REGISTER good"]
    harness.peer.on_deleted(Name("bad"))
    attempt.lose()
    harness.clock.advance(1)
    assert harness.meet().heard() == ["REGISTER bad", "REGISTER good"]


def test_a_refused_name_is_tried_again_later() -> None:
    harness = Harness("bad")
    harness.meet()
    harness.last.say(sized(b"E_FULL"))
    harness.last.lose()
    for _ in range(int(REFUSED_SECONDS)):
        harness.clock.advance(1)
    harness.last.outcome.cancel()
    harness.clock.advance(MAX_RETRY_SECONDS)
    assert harness.meet().heard() == ["REGISTER bad"]


def test_a_refused_name_is_told_later_to_a_connection_that_lives_on() -> None:
    harness = Harness("bad", "gone")
    attempt = harness.meet()
    attempt.heard()
    for _ in range(2):
        attempt.say(sized(b"E_TOO_MANY_REGISTRATIONS"))
    harness.peer.on_deleted(Name("gone"))
    harness.clock.advance(0)
    for _ in range(int(REFUSED_SECONDS / PING_SECONDS)):
        assert attempt.heard() == []
        harness.clock.advance(PING_SECONDS)
        heard = attempt.heard()
        for _ in heard:
            attempt.say(sized(b"OK"))
    assert heard == ["PING", "REGISTER bad"]


def test_of_a_refused_channel_the_topic_is_told() -> None:
    harness = Harness()
    harness.names = [Name("t", "c")]
    attempt = harness.meet()
    assert attempt.heard() == ["REGISTER t c"]
    attempt.say(sized(b"E_TOO_MANY_REGISTRATIONS"))
    assert attempt.heard() == ["REGISTER t"]
    attempt.lose()
    harness.clock.advance(RETRY_SECONDS)
    assert harness.meet().heard() == ["REGISTER t"]


def test_it_is_settled_when_it_is_known_whether_somebody_is_there() -> None:
    met, away = Harness(), Harness()
    assert not met.peer.ready.is_known
    met.meet()
    away.last.fail()
    assert met.peer.ready.is_known
    assert away.peer.ready.is_known
    assert away.peer.lookupd is None


def test_stopped_it_closes_and_does_not_come_back() -> None:
    connected, connecting, waiting = Harness(), Harness(), Harness()
    connected.meet()
    connected.peer.on_created(Name("t"))
    waiting.last.fail()
    for harness in (connected, connecting, waiting):
        harness.peer.stop()
        assert harness.peer.lookupd is None
        assert harness.peer.ready.is_known
    assert connected.last.transport.disconnecting
    assert connecting.last.is_cancelled
    connected.last.lose()
    for harness in (connected, connecting, waiting):
        harness.clock.advance(MAX_RETRY_SECONDS)
        assert len(harness.attempts) == 1
        assert not harness.clock.getDelayedCalls()


def test_a_connection_that_comes_after_the_stop_is_closed() -> None:
    harness = Harness()
    harness.peer.stop()
    harness.last.protocol = harness.last._factory.buildProtocol(None)
    harness.last.protocol.makeConnection(harness.last.transport)
    assert harness.last.is_closed


def test_who_waits_is_told_once_it_is_known() -> None:
    ready, told = ReadyEvent(), []
    ready.wait().addCallback(told.append)
    ready.tell()
    ready.wait().addCallback(told.append)
    assert told == [None, None]


def test_in_time_or_not_at_all() -> None:
    clock, late = Clock(), Deferred[None]()
    failed: list[Failure] = []
    in_time(late, 1, clock).addErrback(failed.append)
    clock.advance(1)
    assert isinstance(failed[0].value, TimeoutError)
