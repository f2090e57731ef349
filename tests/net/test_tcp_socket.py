"""Writes of a connection to its socket, beside those of Twisted's transport."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.address import UNIXAddress
from twisted.internet.error import ConnectionLost
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure

from nsqtw.net.tcp import MAX_PIECES, BrokerConnection
from nsqtw.protocols.session import Session
from tests.net.test_tcp import OK, Edge, FakeReactor, body
from tests.wire import ANSWER_SECONDS

PUB = b"PUB t\n" + body(b"hello")


class SocketTransport(Connection):
    """Twisted's, on one end of a pair of sockets."""

    def __init__(self, ours: socket.socket, protocol: BrokerConnection) -> None:
        super().__init__(ours, protocol, IdleReactor())  # type: ignore[arg-type]
        self.connected = 1

    def getPeer(self) -> UNIXAddress:
        return UNIXAddress("")

    def setTcpNoDelay(self, on: bool) -> None: ...


class IdleReactor(FakeReactor):
    """Says nothing of readers, and does nothing later."""

    def removeReader(self, reader: object) -> None: ...

    def callLater(self, *what: object) -> None: ...


class Pair(Edge):
    """A broker's connection on a real socket, and the client's end of it. No reactor: the test says when it is read."""

    def __init__(self) -> None:
        super().__init__()
        self._ours, self.client = socket.socketpair()
        self.client.settimeout(ANSWER_SECONDS)
        self.connection: BrokerConnection = self.factory.buildProtocol(None)
        self.transport = SocketTransport(self._ours, self.connection)
        self.connection.makeConnection(self.transport)

    def publish(self, data: bytes) -> None:
        """What a reactor does when there is something, and a turn."""
        self.client.sendall(data)
        assert self.transport.doRead() is None
        self.settle()

    def clog(self) -> int:
        """Bytes that the client has to read until something is written to the socket again."""
        count = 0
        while True:
            try:
                count += self.transport.socket.send(b"x" * 4096)
            except BlockingIOError:
                return count

    def unclog(self, count: int) -> None:
        """Read so many."""
        while count:
            count -= len(self.client.recv(count))

    def lose(self) -> None:
        self.transport.connectionLost(Failure(ConnectionLost()))

    def close(self) -> None:
        self.client.close()
        self._ours.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.close()


def test_what_is_there_is_read_and_answered(pair: Pair) -> None:
    assert pair.transport.doRead() is None, "nothing is there"
    pair.publish(b"  V2" + PUB)
    pair.publish(PUB)
    assert pair.client.recv(100) == OK * 2


def test_what_waits_in_the_transport_is_written_first_and_then_the_socket_is_written_to_again(pair: Pair) -> None:
    pair.publish(b"  V2")
    count = pair.clog()
    pair.publish(PUB)
    pair.publish(PUB)
    assert pair.transport._tempDataBuffer == [OK, OK]
    pair.unclog(count)
    pair.publish(PUB)
    assert pair.transport._tempDataBuffer == [OK, OK, OK], "behind the others"
    pair.transport.doWrite()
    assert pair.client.recv(100) == OK * 3
    pair.publish(PUB)
    assert (pair.transport._tempDataBuffer, pair.client.recv(100)) == ([], OK)


class Large(Session):
    """A session with output in large pieces."""

    closing = is_behind = False
    wants_data = 1

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def data_to_send(self) -> list[Any]:
        pieces, self.pieces = self.pieces, []
        return [*pieces]

    def pause_delivery(self) -> None: ...

    def resume_delivery(self, now: float) -> None: ...


@pytest.mark.parametrize("count", [2, 3, MAX_PIECES + 1])
@pytest.mark.parametrize("is_clogged", [False, True])
def test_large_pieces_are_written_in_order_however_little_the_socket_takes(
    pair: Pair, count: int, is_clogged: bool
) -> None:
    pair.publish(b"  V2" + PUB)
    assert pair.client.recv(100) == OK
    session = pair.connection._session = Large()
    left = pair.clog() if is_clogged else 0
    sent = b""
    for turn in range(3):
        session.pieces = [bytes([turn, number]) * 40_000 for number in range(count)]
        sent += b"".join(session.pieces)
        pair.connection.flush(0.0)
    pair.unclog(left)
    received = b""
    while len(received) < len(sent):
        pair.transport.doWrite()
        received += pair.client.recv(1 << 20)
    assert received == sent and not pair.transport.dataBuffer


def test_what_is_answered_when_the_connection_is_lost_does_no_harm(pair: Pair) -> None:
    pair.publish(b"  V2")
    pair.lose()
    pair.connection._write(OK)
    assert pair.transport._tempDataBuffer == []
    assert pair.client.recv(100) == b""


def test_a_connection_that_is_lost_before_its_session_leaves_no_cycle_for_the_collector(pair: Pair) -> None:
    gone = weakref.ref(pair.transport)
    gc.disable()
    try:
        pair.lose()
        del pair.connection, pair.transport
        assert gone() is None
    finally:
        gc.enable()
