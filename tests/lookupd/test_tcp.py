"""Connections of nsqds, in a time that the test owns."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure

from nsqtw.daemon.operator_log import log
from nsqtw.lookupd.registrations import RegistrationQuotas, Registrations
from nsqtw.lookupd.tcp import NsqdConnection, NsqdFactory
from nsqtw.lookupd.v1 import V1Context
from nsqtw.net.connection import END_SECONDS
from nsqtw.net.limits import Limits
from nsqtw.options.lookupd import LookupdOptions
from nsqtw.runtime.turns import PlainTurns
from tests.lookupd.harness import INACTIVE_AFTER, TOMBSTONE
from tests.lookupd.nsqd import identify, responses

ADDRESS = IPv4Address("TCP", "10.0.0.9", 50000)


class Harness:
    """An nsqlookupd without sockets."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        turns = PlainTurns(self.clock)
        turns.now = self.clock.seconds  # type: ignore[method-assign]
        self.options = LookupdOptions(**options)
        self.limits = Limits(self.options, self.clock, turns.now)
        self.registrations = Registrations(INACTIVE_AFTER, TOMBSTONE, RegistrationQuotas())
        self.factory = NsqdFactory(V1Context(self.registrations, log, b"{}"), self.options, turns, self.limits)

    def connect(self, said: bytes = b"") -> tuple[NsqdConnection, Any]:
        """A connection that says this at once, and its transport."""
        connection = self.factory.buildProtocol(ADDRESS)
        assert isinstance(connection, NsqdConnection)
        transport: Any = StringTransportWithDisconnection(peerAddress=ADDRESS)
        transport.protocol = connection
        transport.abortConnection = lambda: connection.connectionLost(Failure(ConnectionLost()))
        connection.makeConnection(transport)
        if said:
            connection.dataReceived(said)
        return connection, transport

    def wait(self, seconds: float) -> None:
        """Let time pass, a round at a time."""
        self.clock.pump([self.limits.sweeper.seconds] * round(seconds / self.limits.sweeper.seconds))

    def over(self) -> dict[str, int]:
        """Who was over a limit."""
        return self.limits.rejections.counts


def test_who_asks_for_much_at_once_does_not_keep_the_others_waiting() -> None:
    harness = Harness()
    greedy, transport = harness.connect(b"  V1" + identify() + b"PING\n" * 13_000)
    assert len(responses(transport.value())) < 200
    assert transport.producerState == "paused"
    _, other = harness.connect(b"  V1PING\n")
    assert responses(other.value()) == [b"OK"]
    greedy.readConnectionLost()
    harness.clock.advance(0)
    assert responses(transport.value()) == [b"{}"] + [b"OK"] * 13_000
    assert not transport.connected


def test_who_goes_while_much_is_to_be_done_for_it_leaves_nothing() -> None:
    harness = Harness()
    connection, _ = harness.connect(b"  V1" + identify() + b"REGISTER t\nUNREGISTER t\n" * 1000 + b"REGISTER u\n")
    connection.connectionLost(Failure(ConnectionLost()))
    harness.clock.advance(0)
    assert harness.registrations.topics() == ["t"]
    assert not harness.registrations.producer_count


@pytest.mark.parametrize("said", [b"", b"  V"])
def test_who_does_not_say_a_protocol_goes(said: bytes) -> None:
    harness = Harness()
    _, transport = harness.connect(said)
    harness.wait(8)
    assert transport.connected
    harness.wait(5)
    assert not transport.connected
    assert harness.over() == {"magic-timeout": 1}
    assert harness.limits.connection_limiter.count == 0
    assert not harness.factory.connections


@pytest.mark.parametrize("said", [b"  V1", b"  V1PING\n", b"  V1" + identify() + b"REGISTER t\nPI"])
def test_who_is_silent_goes_and_with_it_what_it_had(said: bytes) -> None:
    harness = Harness()
    _, transport = harness.connect(said)
    harness.wait(290)
    assert transport.connected
    harness.wait(20)
    assert not transport.connected
    assert harness.over() == {"idle-timeout": 1}
    assert harness.registrations.producer_count == 0


def test_half_a_command_is_no_sign_of_life_and_a_ping_is() -> None:
    harness = Harness(idle_timeout=60.0)
    pinging, good = harness.connect(b"  V1")
    trickling, bad = harness.connect(b"  V1")
    for _ in range(10):
        harness.wait(15)
        pinging.dataReceived(b"PING\n")
        if bad.connected:
            trickling.dataReceived(b"P")
    assert good.connected
    assert not bad.connected


def test_deadlines_can_be_turned_off() -> None:
    harness = Harness(idle_timeout=0.0, magic_timeout=0.0)
    transports = [harness.connect(said)[1] for said in (b"", b"  V1", b"  V1PING\n")]
    harness.wait(2000)
    assert all(transport.connected for transport in transports)


def test_who_does_not_read_is_not_read_from() -> None:
    harness = Harness()
    connection, transport = harness.connect(b"  V1")
    assert transport.producer is connection
    connection.pauseProducing()
    assert transport.producerState == "paused"
    connection.resumeProducing()
    assert transport.producerState == "producing"


def test_after_an_error_nothing_is_looked_at_any_more() -> None:
    harness = Harness()
    connection, transport = harness.connect(b"  V1NOPE\n")
    assert responses(transport.value()) == [b"E_INVALID invalid command NOPE"]
    connection.dataReceived(b"PING\n")
    assert len(responses(transport.value())) == 1


def test_a_peer_that_does_not_take_the_last_word_is_not_waited_for() -> None:
    harness = Harness()
    connection, transport = harness.connect(b"  V1")
    transport.loseConnection = lambda: None  # something is still to be written
    connection.dataReceived(b"NOPE\n")
    assert harness.factory.connections == {connection}
    harness.clock.advance(END_SECONDS)
    assert not harness.factory.connections


def test_the_end_of_the_stream_is_answered_if_there_is_something_to_be_said() -> None:
    harness = Harness()
    connection, transport = harness.connect(b"  V1IDENTIFY\n\0\0\0\x10{")
    connection.readConnectionLost()
    assert responses(transport.value()) == [b"E_BAD_BODY IDENTIFY failed to read body"]
    connection, transport = harness.connect(b"  V1PING\n")
    connection.readConnectionLost()
    assert responses(transport.value()) == [b"OK"]
    assert not transport.connected
    connection, transport = harness.connect(b"  ")
    connection.readConnectionLost()
    assert transport.value() == b""
    assert not harness.factory.connections


def test_connections_are_different_nsqds_whatever_their_address() -> None:
    harness = Harness()
    harness.connect(b"  V1" + identify() + b"REGISTER t\n")
    connection, _ = harness.connect(b"  V1" + identify() + b"REGISTER t\n")
    assert harness.registrations.producer_count == 2
    connection.connectionLost(Failure(ConnectionDone()))
    assert harness.registrations.producer_count == 1


def test_a_stop_ends_every_connection() -> None:
    harness = Harness()
    transports = [harness.connect(said)[1] for said in (b"", b"  V1", b"  V1" + identify())]
    harness.factory.disconnect_all()
    assert not any(transport.connected for transport in transports)
    assert harness.limits.connection_limiter.count == 0
