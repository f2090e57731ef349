"""The TCP edge: the magic, back-pressure both ways, and the end of a connection."""

from __future__ import annotations

import struct

import pytest
from twisted.internet.testing import StringTransport

from nsqtw.net.tcp import END_SECONDS, BrokerConnection, BrokerFactory
from nsqtw.protocols.v2 import V2Factory
from tests.net.test_pump import House

OK = b"\0\0\0\6\0\0\0\0OK"


class SpyTransport(StringTransport):
    """Knows whether it was told to stop reading."""

    bufferSize = 0

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.aborting = False

    def abortConnection(self) -> None:
        self.aborting = True

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def setTcpNoDelay(self, on: bool) -> None:
        self.no_delay = on

    def setTcpKeepAlive(self, on: bool) -> None:
        self.keep_alive = on


class Edge(House):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.factory = BrokerFactory(self.reactor, self.broker, self.pump, {V2Factory.magic: V2Factory()})

    def connect(self) -> tuple[BrokerConnection, SpyTransport]:
        connection, transport = self.factory.buildProtocol(None), SpyTransport()
        connection.makeConnection(transport)
        return connection, transport

    def settle(self) -> None:
        """Turns, with every save done, until nothing moves."""
        self.turn()
        while self.writer.saves:
            self.writer.finish()
            self.turn()


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    return Edge(monkeypatch)


def body(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_session_begins_after_four_bytes_however_they_come(edge: Edge) -> None:
    connection, transport = edge.connect()
    for byte in b"  V2PUB t\n" + body(b"hello"):
        connection.dataReceived(bytes([byte]))
    edge.settle()
    assert transport.value() == OK
    assert edge.world.topic().message_count == 1
    assert (transport.no_delay, transport.keep_alive) == (True, True)


def test_an_unknown_magic_is_answered_and_the_connection_closed(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"GET / HTTP/1.1\r\n")
    assert transport.value() == b"\0\0\0\x12\0\0\0\1E_BAD_PROTOCOL"
    assert transport.disconnecting


def test_a_connection_that_ends_inside_the_magic_is_closed_without_a_word(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V")
    connection.readConnectionLost()
    assert (transport.value(), transport.disconnecting) == (b"", True)


def test_a_fatal_error_is_written_before_the_connection_closes(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2BOGUS\nNOP\n")
    edge.settle()
    assert transport.value().endswith(b"E_INVALID invalid command BOGUS")
    assert transport.disconnecting


def test_a_paused_transport_gets_no_messages_until_it_resumes(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2SUB t c\nRDY 5\n")
    edge.settle()
    transport.clear()
    connection.pauseProducing()
    edge.world.topic().put([b"a"], 0, lambda error: None)
    edge.pump.wake()
    edge.settle()
    assert transport.value() == b""
    connection.resumeProducing()
    edge.settle()
    assert transport.value().endswith(b"a")


def test_who_does_not_read_replies_is_not_read_from(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2")
    connection.pauseProducing()
    for _ in range(30):
        connection.dataReceived((b"PUB t\n" + body(b"x") + b"NOP\n") * 50)
        edge.settle()
    assert not transport.reading
    connection.resumeProducing()
    edge.settle()
    assert transport.reading


def test_a_new_channel_holds_reading_back_until_it_is_saved(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2SUB t c\nRDY 1\n")
    edge.turn()
    assert (transport.value(), transport.reading) == (b"", False)
    edge.settle()
    assert (transport.value(), transport.reading) == (OK, True)
    (consumer,) = edge.world.topic().channels["c"].consumers
    assert consumer.ready_count == 1


def test_a_peer_that_ends_its_side_still_gets_what_is_owed(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2PUB t\n" + body(b"x"))
    connection.readConnectionLost()
    assert not transport.disconnecting
    edge.settle()
    assert (transport.value(), transport.disconnecting) == (OK, True)


def test_a_lost_connection_leaves_its_channel(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2SUB t c\n")
    edge.settle()
    connection.connectionLost()
    edge.settle()
    assert edge.world.topic().channels["c"].consumers == []
    assert edge.broker.clients == {}
    assert edge.factory.connections == set()


def test_a_peer_that_does_not_read_its_end_is_not_waited_for(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2BOGUS\n")
    edge.settle()
    assert transport.disconnecting
    edge.reactor.advance(END_SECONDS - 0.1)
    assert not transport.aborting
    edge.reactor.advance(0.2)
    assert transport.aborting


def test_one_that_ends_in_time_is_forgotten(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2BOGUS\n")
    edge.settle()
    connection.connectionLost()
    edge.reactor.advance(END_SECONDS + 1)
    assert not transport.aborting
