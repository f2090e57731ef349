"""The TCP edge: the magic, back-pressure both ways, and the end of a connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import StringTransport
from zope.interface import Interface

from nsqtw.auth.authorization import PluginAuthorizations
from nsqtw.auth.grants import Grant, Grants
from nsqtw.net.connection import END_SECONDS
from nsqtw.net.partial_input import PartialInput
from nsqtw.net.stalls import StallDetector, unread_bytes
from nsqtw.net.tcp import BrokerConnection
from nsqtw.net.tcp_factory import BrokerFactory
from nsqtw.protocols.v2 import V2Factory
from nsqtw.rights import Answer, Credentials
from tests.runtime.harness import Harness
from tests.wire import ANSWER_SECONDS, HOST

OK = b"\0\0\0\6\0\0\0\0OK"


class SpyTransport(StringTransport):
    """Knows whether it was told to stop reading."""

    bufferSize = 0

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.aborting = False
        self.on_write: Callable[[], object] = lambda: None

    def write(self, data: bytes) -> None:
        self.on_write()
        super().write(data)

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


class Edge(Harness):
    def __init__(self) -> None:
        super().__init__()
        self.factory = BrokerFactory(self.reactor, self.broker, self.pump, {V2Factory.magic: V2Factory()})

    def connect(self) -> tuple[BrokerConnection, SpyTransport]:
        connection, transport = self.factory.buildProtocol(None), SpyTransport()
        connection.makeConnection(transport)
        return connection, transport

    def settle(self) -> None:
        """Turns, with every save done, until nothing moves."""
        self.turn()
        while self.writer.checkpointer:
            self.writer.finish()
            self.turn()


@pytest.fixture
def edge() -> Edge:
    return Edge()


def body(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_session_begins_after_four_bytes_however_they_come(edge: Edge) -> None:
    connection, transport = edge.connect()
    for byte in b"  V2PUB t\n" + body(b"hello"):
        connection.dataReceived(bytes([byte]))
    edge.settle()
    assert transport.value() == OK
    assert edge.core.topic().message_count == 1
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
    edge.core.topic().put([b"a"], 0, lambda error: None)
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
    (consumer,) = edge.core.topic().channels["c"].consumers
    assert consumer.ready_count == 1


def test_a_peer_that_ends_its_side_still_gets_what_is_owed(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2PUB t\n" + body(b"x"))
    connection.readConnectionLost()
    assert not transport.disconnecting
    edge.settle()
    assert (transport.value(), transport.disconnecting) == (OK, True)


def message_id(frames: bytes) -> bytes:
    """Of the last message."""
    return frames[-17:-1]


def test_messages_are_written_before_oks_of_their_turn_whoever_was_read_first(edge: Edge) -> None:
    written: list[str] = []
    (consumer, received), (producer, answers) = edge.connect(), edge.connect()
    consumer.dataReceived(b"  V2SUB t c\nRDY 1\n")
    edge.settle()
    producer.dataReceived(b"  V2PUB t\n" + body(b"1"))
    edge.settle()
    first = message_id(received.value())
    received.on_write, answers.on_write = partial(written.append, "message"), partial(written.append, "OK")
    producer.dataReceived(b"PUB t\n" + body(b"2"))
    consumer.dataReceived(b"FIN " + first + b"\n")
    edge.settle()
    assert written == ["message", "OK"]


def test_a_command_whose_rights_are_asked_for_again_goes_on_when_they_are_there(edge: Edge) -> None:
    asked: list[Deferred[Grants]] = []

    class Slow:
        def authorize(self, credentials: Credentials, answer: Answer) -> Deferred[Grants]:
            asked.append(Deferred())
            return asked[-1]

    def grant(ttl: float) -> None:
        asked.pop().callback(Grants([Grant(".*", [".*"], ["publish"])], identity="ann", ttl=ttl))
        edge.settle()

    edge.broker.authorizations = PluginAuthorizations(edge.reactor, Slow(), edge.pump.now)
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2AUTH\n" + body(b"secret"))
    grant(ttl=1)
    transport.clear()
    edge.core.now += 2
    connection.dataReceived(b"PUB t\n" + body(b"hello"))
    edge.settle()
    assert transport.value() == b""
    grant(ttl=60)
    assert transport.value() == OK


def test_a_lost_connection_leaves_its_channel(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2SUB t c\n")
    edge.settle()
    connection.connectionLost()
    edge.settle()
    assert edge.core.topic().channels["c"].consumers == []
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


# -- limits


def pass_time(edge: Edge, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        edge.reactor.advance(0.5)


@pytest.mark.parametrize("said", [b"", b"  V"])
def test_the_magic_must_be_there_in_time(edge: Edge, said: bytes) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(said)
    pass_time(edge, 9.5)
    assert not transport.disconnecting
    pass_time(edge, 3)
    assert (transport.value(), transport.disconnecting) == (b"", True)
    pass_time(edge, END_SECONDS)
    assert transport.aborting
    assert edge.factory.limits.rejections.counts == {"magic-timeout": 1}


def test_behind_the_magic_a_client_may_be_silent(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2")
    pass_time(edge, 50)
    assert not (transport.disconnecting or transport.aborting)


def test_half_commands_have_a_common_bound(edge: Edge) -> None:
    edge.factory.limits.partial_input = PartialInput(100_000)
    half = b"  V2MPUB t\n" + struct.pack(">iii", 90_000, 2, 80_000) + b"x" * 40_000
    pairs = [edge.connect() for _ in range(3)]
    for connection, _ in pairs:
        connection.dataReceived(half)
    edge.settle()
    gone, *others = (transport for _, transport in pairs)
    assert gone.value().endswith(b"E_BAD_MESSAGE MPUB failed to read message body")
    assert gone.disconnecting
    assert not any(transport.disconnecting for transport in others)
    assert edge.factory.limits.partial_input.total == 80_008
    for connection, transport in pairs[1:]:
        connection.dataReceived(b"x" * 40_000 + body(b"y"))
        edge.settle()
        assert transport.value() == OK
    assert edge.factory.limits.partial_input.total == 0
    assert edge.factory.limits.rejections.counts == {"max-unfinished-size": 1}


def test_a_half_command_is_counted_however_small_its_pieces_are(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2PUB t\n" + struct.pack(">i", 90_000))
    for _ in range(3):
        connection.dataReceived(b"x" * 10_000)
        edge.turn()
    assert edge.factory.limits.partial_input.total == 30_000
    connection.dataReceived(b"x" * 60_000)
    assert edge.factory.limits.partial_input.total == 0


def test_a_half_command_is_counted_when_its_beginning_was_small_and_came_behind_others(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2" + b"NOP\n" * 3_000 + b"PUB t\n" + struct.pack(">i", 90_000) + b"x" * 15_000)
    edge.turn()
    assert edge.factory.limits.partial_input.total == 0
    connection.dataReceived(b"x" * 15_000)
    edge.turn()
    assert edge.factory.limits.partial_input.total == 30_000


def test_what_a_lost_connection_kept_is_not_counted_any_more(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2PUB t\n" + struct.pack(">i", 90_000) + b"x" * 40_000)
    assert edge.factory.limits.partial_input.total == 40_000
    connection.connectionLost()
    assert edge.factory.limits.partial_input.total == 0
    assert edge.factory.limits.connection_limiter.count == 0


def test_a_protocol_that_does_not_say_what_it_keeps_is_let_be(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.net.tcp.ICountedProtocol", Interface)
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2PUB t\n" + struct.pack(">i", 90_000) + b"x" * 90_000)
    edge.settle()
    assert transport.value() == OK


# -- readers


class Reading:
    """A connection over real sockets whose peer reads when the test says so, and the time of the test."""

    def __init__(self) -> None:
        self.stall = StallDetector()
        self.now = 0.0
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.peer.settimeout(ANSWER_SECONDS)
        self.transport = Connection(ours, Protocol(), FakeReactor())
        while True:
            try:
                ours.send(b"x" * 65536)
            except BlockingIOError:
                break

    def lasts(self, seconds: float) -> float:
        self.now += seconds
        return self.stall.lasts(self.transport, self.now)

    def close(self) -> None:
        self.peer.close()
        self.transport.socket.close()


class FakeReactor:
    def addWriter(self, writer: object) -> None: ...

    def removeWriter(self, writer: object) -> None: ...

    def addReader(self, reader: object) -> None: ...


@pytest.fixture
def reading() -> Iterator[Reading]:
    one = Reading()
    yield one
    one.close()


def test_who_reads_nothing_is_stuck(reading: Reading) -> None:
    assert reading.lasts(1) == 0
    assert [reading.lasts(10) for _ in range(3)] == [10, 20, 30]
    reading.transport.write(b"x" * 1000)
    assert reading.lasts(10) == 40


def test_who_reads_a_little_now_and_then_is_not(reading: Reading) -> None:
    reading.transport.write(b"x" * 1_000_000)
    reading.lasts(1)
    for _ in range(3):
        assert reading.lasts(50) <= 50
        reading.peer.recv(65536)
        assert reading.lasts(1) == 0


def test_who_has_nothing_to_read_is_not_either() -> None:
    ours, peer = socket.socketpair()
    transport = Connection(ours, Protocol(), FakeReactor())
    assert unread_bytes(transport) == 0
    stall = StallDetector()
    assert [stall.lasts(transport, now) for now in (0.0, 100.0, 200.0)] == [0, 0, 0]
    ours.close()
    peer.close()
    assert unread_bytes(StringTransport()) == 0


def test_who_asks_again_as_soon_as_he_has_read_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a long line there is always one answer on its way, and always as many bytes."""
    with socket.create_server((HOST, 0)) as listener:
        peer = socket.create_connection(listener.getsockname(), timeout=ANSWER_SECONDS)
        ours, _ = listener.accept()
    monkeypatch.setattr("nsqtw.net.stalls._unread_in_kernel", lambda connection: 10)
    stall, transport = StallDetector(), Connection(ours, Protocol(), FakeReactor())
    with peer, ours:
        stall.lasts(transport, 0.0)
        for now in (50.0, 100.0, 150.0):
            ours.sendall(b"x" * 10)
            assert len(peer.recv(10)) == 10
            peer.sendall(b"?")  # and with it that the answer has come
            assert ours.recv(1) == b"?"
            assert stall.lasts(transport, now) == 0


def test_who_has_read_all_that_is_sent_is_not_whatever_is_to_be_sent_next(reading: Reading) -> None:
    with suppress(BlockingIOError):
        reading.peer.setblocking(False)
        while reading.peer.recv(65536):
            pass
    reading.transport.write(b"x" * 1000)
    assert [reading.lasts(50) for _ in range(3)] == [0, 0, 0]


def test_who_is_stuck_is_cut_off(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    unread = {"bytes": 1000}
    monkeypatch.setattr("nsqtw.net.stalls._unread_in_kernel", lambda connection: unread["bytes"])
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2")
    for number in range(4):
        unread["bytes"] -= number // 2
        connection.dataReceived(b"NOP\n")
        pass_time(edge, 50)
    assert not transport.aborting
    for _ in range(2):
        connection.dataReceived(b"NOP\n")
        pass_time(edge, 40)
    assert transport.aborting
    assert edge.factory.limits.rejections.counts == {"write-timeout": 1}


def test_who_has_read_everything_is_not_looked_at_until_more_is_written(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def nothing_unread(connection: object) -> int:
        looks.append("look")
        return 0

    monkeypatch.setattr("nsqtw.net.stalls._unread_in_kernel", nothing_unread)
    connection, transport = edge.connect()
    monkeypatch.setattr(connection, "_plain", transport)
    monkeypatch.setattr(connection, "_send", lambda data: transport.write(data) or len(data))
    connection.dataReceived(b"  V2")
    pass_time(edge, 20)
    assert looks == ["look"]
    connection.dataReceived(b"SUB\n")
    pass_time(edge, 20)
    assert transport.value()
    assert looks == ["look"] * 2
