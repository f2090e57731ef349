"""
TLS on a connection: a transport for the protocol above, a protocol for the transport below.

    BrokerConnection, HttpConnection ─▶ write ─▶ TlsTransport ─▶ OpenSSL ─▶ write ─▶ TCP
                                      dataReceived ◀─┘             ◀─ dataReceived ◀─┘

Theory of operation. OpenSSL works on memory buffers: received bytes are put in, and the bytes to send are taken out and
written below. The contents of one read are decrypted together and delivered in one piece: a chunk is the unit of work
here too, and its size bounds the memory. Back-pressure is that of the transport below, whose producer is the protocol
above. A peer that has closed its sending side may still read, as over TCP.

Twisted has such a transport. It is not used because NSQ's clients get a plain-text error after a failed handshake;
because a peer that has ended its side gets no answers from it; and because it writes a turn later.

TLS has answers of its own (to KeyUpdate), which back-pressure does not reach: a peer that requests more of them than
MAX_ANSWERED_BYTES, far more than a connection of years needs, and does not read them, is disconnected.

Before the end of the handshake the protocol above cannot write and reads nothing. A handshake that takes longer than
HANDSHAKE_SECONDS has failed.
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from nsqtw.net.addresses import address_text
from nsqtw.net.tls_names import NOT_TLS, described, reason_of
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.transport import SocketTransport, Transport
from nsqtw.upgrades import Secured, StartTls

HANDSHAKE_SECONDS = 5.0
MAX_ANSWERED_BYTES = 256 * 1024
_RECORD_BYTES = 16384
_TAKEN_BYTES = 65536
_HEAD_BYTES = 5
_ALERT, HANDSHAKE = 21, 22
_LOWEST_UNKNOWN_VERSION = 0x10

_TOLD_NOBODY = StartTls(lambda secured: None, lambda reason: b"")
"""The `start` of a lost connection."""


@implementer(IHalfCloseableProtocol, IPushProducer, ITransport)
class TlsTransport(Protocol):
    """
    The TLS side of one connection for `application`. `start` is told how the handshake ends, unless the connection is
    lost before. `connects`: the application is told of the connection, which otherwise it has already.
    """

    transport: Transport

    def __init__(
        self, application: Any, connection: SSL.Connection, start: StartTls, reactor: Reactor, *, connects: bool
    ) -> None:
        self.secured: Secured | None = None
        """The result of the handshake; None before its end."""
        self.head = b""
        """The first bytes that came."""
        self._application = application
        self._connection = connection
        self._start = start
        self._reactor = reactor
        self._connects = connects
        self._is_over = False
        self._is_paused = not connects
        self._has_ended = False
        self._answered_bytes = 0
        self._deadline: Any = None
        self._failure: Failure | None = None
        connection.set_accept_state()

    def begin(self, transport: SocketTransport) -> None:
        """Take the place of the application on a connection it has."""
        transport.protocol = self
        self.makeConnection(transport)  # type: ignore[no-untyped-call]
        transport.resumeProducing()

    # -- from the transport below

    def connectionMade(self) -> None:
        self._deadline = self._reactor.callLater(HANDSHAKE_SECONDS, self._time_out)
        if self._connects:
            if hasattr(self.transport, "setTcpKeepAlive"):
                self.transport.setTcpKeepAlive(True)
            self._application.makeConnection(self)

    def dataReceived(self, data: bytes) -> None:
        if self._is_over:
            return
        self._connection.bio_write(data)
        if self.secured is not None or self._shake(data):
            self._deliver()

    def readConnectionLost(self) -> None:
        if self.secured is None:
            self._is_over = True
            self.transport.loseConnection()
        else:
            self._end_reading()

    def writeConnectionLost(self) -> None:
        """Only we end the writing side, and then the whole connection."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        self._cancel_deadline()
        self._start = _TOLD_NOBODY  # what it was may refer to this transport
        application, self._application = self._application, None
        application.connectionLost(self._failure or reason)

    # -- from the protocol above

    @property
    def disconnecting(self) -> bool:
        """Twisted's protocols stop at it."""
        return self._is_over

    def write(self, data: bytes) -> None:
        if self._is_over or self.secured is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._connection.send(rest[:_RECORD_BYTES]) :]
        except SSL.Error as error:
            self._break(reason_of(error))
        else:
            self._flush()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self._cancel_deadline()
        if not self._is_over:
            self._is_over = True
            if self.secured is not None:
                self._say_goodbye()
        self.transport.loseConnection()

    def abortConnection(self) -> None:
        """Close at once, without writing what is buffered."""
        self._is_over = True
        self.transport.abortConnection()

    def getPeer(self) -> Any:
        return self.transport.getPeer()

    def getHost(self) -> Any:
        return self.transport.getHost()

    def pauseProducing(self) -> None:
        self._is_paused = True
        if self.secured is not None:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._is_paused = False
        if self.secured is not None:
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.transport.unregisterProducer()

    # -- the handshake

    def _shake(self, data: bytes) -> bool:
        """Take the next step; returns whether it was the last one."""
        if len(self.head) < _HEAD_BYTES:
            self.head = (self.head + data)[:_HEAD_BYTES]
            if len(self.head) < _HEAD_BYTES:
                return False
            if self.head[0] not in (_ALERT, HANDSHAKE) or self.head[1] >= _LOWEST_UNKNOWN_VERSION:
                self._fail(NOT_TLS)
                return False
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            self._flush()
            return False
        except SSL.Error as error:
            self._flush()  # the alert
            self._fail(reason_of(error, self._connection.get_app_data() or 0))
            return False
        self._cancel_deadline()
        self._flush()
        if self._is_paused:
            self.transport.pauseProducing()
        self.secured = described(self._connection)
        self._start.secured(self.secured)
        return True

    def _time_out(self) -> None:
        # In the words of Go, whose socket the reference has.
        self._fail(f"read tcp {address_text(self.getHost())}->{address_text(self.getPeer())}: i/o timeout")

    def _fail(self, reason: str) -> None:
        """There will be no TLS."""
        self._is_over = True
        self._cancel_deadline()
        self.transport.write(self._start.failed(reason))
        self.transport.loseConnection()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()

    # -- what is encrypted

    def _deliver(self) -> None:
        """Hand up all that can be decrypted."""
        pieces, has_ended, broken = [], False, ""
        try:
            while True:
                pieces.append(self._connection.recv(_RECORD_BYTES))
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            has_ended = True
        except SSL.Error as error:
            broken = reason_of(error)
        self._answered_bytes += self._flush()
        if self._answered_bytes > MAX_ANSWERED_BYTES:
            broken = "tls: too many answers are asked for"
        if pieces:
            self._application.dataReceived(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_over:
            return
        if broken:
            self._break(broken)
        elif has_ended:
            self._end_reading()

    def _flush(self) -> int:
        """Write what OpenSSL has to say. Returns how much that is."""
        taken, written = _TAKEN_BYTES, 0
        while taken == _TAKEN_BYTES:
            try:
                data = self._connection.bio_read(_TAKEN_BYTES)
            except SSL.WantReadError:
                break
            self.transport.write(data)
            taken = len(data)
            written += taken
        return written

    def _end_reading(self) -> None:
        if not (self._has_ended or self._is_over):
            self._has_ended = True
            self._application.readConnectionLost()

    def _break(self, reason: str) -> None:
        """The input is not valid TLS, or was modified."""
        self._failure = Failure(ConnectionLost(reason))  # type: ignore[no-untyped-call]
        self.abortConnection()

    def _say_goodbye(self) -> None:
        try:
            self._connection.shutdown()
        except SSL.Error:
            return
        self._flush()
