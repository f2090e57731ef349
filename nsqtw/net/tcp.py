"""
TCP and unix socket connections: the first four bytes select the protocol, the session does everything else.

Upgrades that the session asks for (nsqtw.upgrades) are done here: TLS replaces the transport, and a compression is
inserted between transport and session. A decompressed chunk is given to the session in pieces, whenever it wants data,
TURN_BYTES of them in a turn. A session executes a limited number of commands of a chunk at once; the rest follows in
steps, in rotation with other connections (nsqtw.runtime.long_work).

Back-pressure works in both directions. When the transport's buffer is full the session delivers nothing; when the
session does not want data the transport is not read from. When it wants a minimum of bytes, the kernel waits for them
(nsqtw.net.low_water).

Until TLS a connection writes to its socket directly, without some calls of Twisted. `_write` checks whether the
transport has output, for which Twisted has private names only (ADR 0019).

Performance: called once per chunk and turn.
"""

# mypyc: compiled

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection as SocketConnection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from nsqtw.errors import BrokenStream
from nsqtw.interfaces import ICountedProtocol, IProtocolFactory
from nsqtw.net.connection import ENDED, IGNORED, MAGIC_BYTES, MagicConnection
from nsqtw.net.partial_input import SMALL_BYTES
from nsqtw.protocols.frames import ERROR, frame
from nsqtw.protocols.guarded import ClientBroker
from nsqtw.protocols.session import Session, adapted, session_of
from nsqtw.runtime.read_size import READ_BYTES
from nsqtw.runtime.transport import SocketTransport
from nsqtw.upgrades import Compress, Compression, StartTls, Upgrade

if TYPE_CHECKING:
    from nsqtw.core.broker import Broker
    from nsqtw.net.limits import Limits
    from nsqtw.net.low_water import LowWater
    from nsqtw.net.tls_settings import TlsSettings
    from nsqtw.runtime.pump import Pump
    from nsqtw.runtime.reactor import Reactor

V2_MAGIC: Final = b"  V2"
"""
The one protocol that turns to TLS by a command of its own, and demands it where it is required. A session of another
one gets no byte before TLS then: its clients begin with the handshake.
"""
TURN_BYTES: Final = 1024 * 1024
"""Decompressed bytes that a session is given in one turn."""

MAX_JOINED: Final = 16 * 1024
"""Bytes up to which the pieces of an output are joined: more of them take longer to copy than to send one by one."""
MAX_PIECES: Final = 64
"""Pieces that are sent without being joined. The kernel takes 1,024."""
_BAD_PROTOCOL: Final = frame(ERROR, b"E_BAD_PROTOCOL")
_NEEDS_TLS: Final = b"E_INVALID the connection must begin with TLS"
_STARTS_TLS_ITSELF: Final = b"E_INVALID V2 turns to TLS with IDENTIFY, not before the magic"

_log = Logger()


class ConnectionOwner(Protocol):
    """The factory of connections, and owner of their shared state. `protocols` are the session factories by magic."""

    reactor: Reactor
    broker: Broker
    pump: Pump
    protocols: Mapping[bytes, IProtocolFactory]
    limits: Limits
    connections: set[BrokerConnection]
    low_water: LowWater
    needs_tls: bool
    tls: TlsSettings | None
    """The TLS settings of connections; None without a certificate."""


class BrokerConnection(MagicConnection):
    """One accepted connection of a client of the broker."""

    def __init__(self, factory: ConnectionOwner, address: Any) -> None:
        super().__init__(factory.reactor, factory.limits, factory.connections, address)
        self._factory = factory
        self._pump = factory.pump
        self._session: Session | None = None
        self._reading = 1
        """What the session wanted last: 0, not to be read from, or the minimum number of bytes."""
        self._mark = 1
        """The low-water mark: how many are, as the kernel was told."""
        self._has_read = False
        """Whether data was read since `wait_on`."""
        self._plain: SocketConnection | None = None
        """The transport while it is Twisted's own of a socket; None with TLS."""
        self._send: Any = None
        """The method send of the socket, while the transport is plain."""
        self._send_pieces: Any = None
        """The method sendmsg of the socket, while the transport is plain."""
        self._may_lag = False
        """Whether the transport may still have output."""
        self._compression: Compression | None = None
        self._holds_data = False
        """Whether the compression may have data for the session."""
        self._is_stepping = False
        """True while the session is called in steps for commands that it is behind with."""
        self._began = 0.0
        self._is_watched = True
        """Whether the sweeper checks the connection."""
        self._counted: Any = None
        """The session, if it says what it keeps."""
        self._holds = False
        """Whether the memory of an unfinished command is counted."""
        self._unweighed = 0
        """Bytes that it may keep: what it kept when it was asked last, and what was read since."""

    # -- from the transport

    def makeConnection(self, transport: SocketTransport) -> None:
        transport.bufferSize = READ_BYTES
        if isinstance(transport, SocketConnection):
            self._plain = transport
            self._send = transport.socket.send
            self._send_pieces = transport.socket.sendmsg
        self._began = self._pump.now()
        super().makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        if self._input is IGNORED:
            return
        self._has_read = True
        if self._mark < self._reading:
            self._reading = self._mark
        session = self._session
        if session is None:
            session = self._choose(data)
            if session is None:
                return
            data = self._magic[MAGIC_BYTES:]
        elif self._compression is not None:
            self._compression.feed(data)
            self._decompress(session, self._compression)
            return
        session.receive_data(data, self._pump.now())
        self._pump.received(self, len(data))
        self._unweighed += len(data)
        if self._unweighed > SMALL_BYTES:  # not with the turn: before it every connection may be read from
            self._account_memory()

    def readConnectionLost(self) -> None:
        if self._session is None:
            self._end_without_magic()
        elif self._holds_data or self._session.is_behind:
            self._input = ENDED
        else:
            self._session.receive_end(self._pump.now())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._limits.partial_input.drop(self)
        self._factory.low_water.leave(self)
        broke = isinstance(reason.value, ConnectionLost)
        if self._session is not None:
            broke = broke and not self._session.closing
            self._session.connection_lost(self._pump.now())
            self._session = self._counted = None
            self._pump.wake()
            if broke:
                text = "client({client}) - failed to read command - {error}"
                _log.error(text, client=self._remote, error=reason.getErrorMessage())
        elif broke and self._end is None:
            self._log_no_magic(reason.getErrorMessage())

    def pauseProducing(self) -> None:
        if self._session is not None:
            self._session.pause_delivery()

    def resumeProducing(self) -> None:
        if self._session is not None:
            self._session.resume_delivery(self._pump.now())
            self._regulate(self._session)
            if self._holds_data:
                self._pump.changed(self)
            self._pump.wake()

    # -- from the pump

    def flush(self, now: float) -> None:
        """
        The turn in which the session was given data, or changed: write what it has to say, in one write, and see to
        what it keeps and whether it wants more. All that was read of it in the turn comes before this.
        """
        session = self._session
        if session is None:
            return
        out: list[Any] = session.data_to_send()
        while out and type(out[-1]) is not bytes:
            upgrade = out.pop()
            if out:
                self._write(b"".join(out))
            self._upgrade(upgrade)
            out = session.data_to_send()
        if out:
            if len(out) == 1:
                self._write(out[0])
            elif len(out) <= MAX_PIECES and sum(map(len, out)) > MAX_JOINED:
                self._write_pieces(out)
            else:
                self._write(b"".join(out))
        if session.closing:
            if session.refused and self._end is None:
                self._limits.rejections.record(session.refused, self._remote)
            self.disconnect()
        elif self._holds_data and self._compression is not None:
            self._decompress(session, self._compression)
        else:
            if self._holds:
                self._account_memory()
            self._regulate(session)

    # -- from the low-water mark

    def wait_on(self) -> bool:
        """Waiting API"""
        if self._mark > 1 and not self._has_read:
            self._wait_for(1)  # until data is read, whatever the session wants: `_reading` stays as it was
            if self._reading:  # kernels before 4.18 do not check received data without a new call
                self.transport.pauseProducing()
                self.transport.resumeProducing()
        self._has_read = False
        return self._mark > 1

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API. A peer that has read everything has no deadline."""
        if self._session is None and self._end is None:
            if 0 < self._limits.options.magic_timeout <= now - self._began:
                self._log_no_magic("i/o timeout")
                self._time_out("magic-timeout")
            return True
        self._check_stall(now)
        self._is_watched = self._stall_detector.is_possible or self._plain is None
        return self._is_watched

    def evict(self) -> None:
        """PartialInput API"""
        self._holds = False
        if self._session is not None:
            self._limits.rejections.record("max-unfinished-size", self._remote)
            self._session.receive_end(self._pump.now())
            self._pump.changed(self)

    def read_rest(self) -> None:
        """Read input that was below the low-water mark. An exception does not affect other connections."""
        if self._reading > 1 and self._plain is not None:
            try:
                self._plain.doRead()
            except Exception:
                _log.failure("reading what is left of a connection failed")

    def ignore(self) -> None:
        """Whatever still comes, it is not looked at."""
        self._input = IGNORED
        self.transport.pauseProducing()

    # -- inside

    def _account_memory(self) -> None:
        """Have it counted what the session keeps of a command that has come in part."""
        if self._counted is None:
            return
        self._unweighed = size = self._counted.unfinished_bytes
        if self._holds or size > SMALL_BYTES:
            self._holds = size > SMALL_BYTES
            self._limits.partial_input.hold(self, size)

    def _write(self, data: bytes) -> None:
        """
        Write to the socket at once, as long as nothing waits to be written before it. Handing it to the reactor costs
        two more system calls and another round, which for an OK is more than making it.
        """
        if not self._is_watched:
            self._watch()
        if self._compression is not None:
            data = self._compression.compress(data)
        if self._plain is not None and not (self._may_lag and self._lags()):
            try:
                written: int = self._send(data)
            except OSError:  # it has no room now; or it is broken or closed, which the reactor finds, too
                written = 0
            if written == len(data):
                return
            data = data[written:]
            self._may_lag = True
        self.transport.write(data)

    def _write_pieces(self, pieces: list[bytes]) -> None:
        """Write pieces that are large together as `_write` does, without joining them first if that can be avoided."""
        if self._compression is not None or self._plain is None or (self._may_lag and self._lags()):
            self._write(b"".join(pieces))
            return
        if not self._is_watched:
            self._watch()
        try:
            written: int = self._send_pieces(pieces)
        except OSError:
            written = 0
        if written < sum(map(len, pieces)):
            self._may_lag = True
            self.transport.write(b"".join(pieces)[written:])

    def _watch(self) -> None:
        """Have the sweeper check from now on whether the peer reads."""
        self._is_watched = True
        self._limits.sweeper.join(self)

    def _lags(self) -> bool:
        """Return whether the transport still has something to write of what it was given."""
        plain = self._plain
        self._may_lag = plain is not None and bool(plain.dataBuffer or plain._tempDataBuffer)
        return self._may_lag

    def _upgrade(self, upgrade: Upgrade) -> None:
        if self._plain is not None:  # what comes from now on is not what the session counts
            self._wait_for(1)
        if isinstance(upgrade, Compress):
            self._compression = upgrade.compression
        else:
            self._start_tls(upgrade)

    def _start_tls(self, start: StartTls) -> None:
        assert self._factory.tls is not None, "a broker without a certificate offers no TLS"
        below, above = cast(SocketTransport, self.transport), self._factory.tls.transport(self, start, connects=False)
        self.transport, self._plain = above, None
        self._reading = 0
        above.begin(below)

    def _steps(self, session: Session) -> Iterator[None]:
        """Let the session carry out the commands that it is behind with, some at each step."""
        while self._session is session and session.is_behind and self._input is not IGNORED:
            try:
                session.receive_data(b"", self._pump.now())
            except Exception:  # of a plugin's session; where the reactor calls, it ends the connection, too
                _log.failure("a connection failed to carry out commands")
                self.abort()
                return
            self._pump.changed(self)
            yield
        self._is_stepping = False
        if self._input is ENDED and not self._holds_data and self._session is session:
            session.receive_end(self._pump.now())
            self._pump.changed(self)

    def _decompress(self, session: Session, compression: Compression) -> None:
        """Give the session what was read, as long as it wants data and this turn has room for it."""
        self._holds_data = True
        room = TURN_BYTES
        try:
            while room > 0 and session.wants_data and not session.closing:
                piece = compression.read()
                if not piece:
                    self._holds_data = False
                    break
                room -= len(piece)
                session.receive_data(piece, self._pump.now())
                self._pump.received(self, len(piece))
            self._account_memory()
        except BrokenStream as error:
            _log.error("client({client}) - failed to read command - {error}", client=self._remote, error=error)
            self._holds_data, self._input = False, ENDED
        if (self._input is ENDED or compression.has_ended) and not self._holds_data:
            session.receive_end(self._pump.now())
        elif room <= 0:
            self._pump.changed(self)
        self._regulate(session)

    def _choose(self, data: bytes) -> Session | None:
        """Make the session, once the magic is there."""
        magic = self._take_magic(data, self._factory.protocols, _BAD_PROTOCOL)
        if not magic:
            return None
        factory = self._factory.protocols[magic]
        is_encrypted = getattr(self.transport, "secured", None) is not None
        if magic == V2_MAGIC and is_encrypted:
            self._refuse(_STARTS_TLS_ITSELF)
            return None
        if magic != V2_MAGIC and self._factory.needs_tls and not is_encrypted:
            self._refuse(_NEEDS_TLS)
            return None
        changed = partial(self._pump.changed, self)
        now = self._pump.now()
        broker: Any = self._factory.broker
        if magic == V2_MAGIC:
            made = factory.session(broker, self._remote, changed, now)
            self._session = session_of(made)
        else:
            secured = getattr(self.transport, "secured", None)
            guarded = ClientBroker(broker, self._remote, factory.name, changed, now, secured)
            try:
                made = factory.session(guarded, self._remote, changed, now)
            except Exception:
                guarded.leave()
                raise
            self._session = adapted(made, guarded)
        self._counted = made if ICountedProtocol.providedBy(made) else None
        return self._session

    def _refuse(self, error: bytes) -> None:
        """Close the connection, which has no session, with an error frame."""
        _log.error("client({client}) - {error}", client=self._remote, error=error.decode())
        self._write(frame(ERROR, error))
        self.disconnect()

    def _regulate(self, session: Session) -> None:
        """Read from the transport exactly when the session wants data, and has had all there is."""
        wants: int = 0 if self._holds_data else session.wants_data
        if wants > 1 and (self._plain is None or self._compression is not None):
            wants = 1
        if not wants and session.is_behind and not self._is_stepping:
            self._is_stepping = True
            self._limits.long_work.add(self._steps(session))
        if wants == self._reading:
            return
        if not wants:
            self.transport.pauseProducing()
        elif not self._reading:
            self.transport.resumeProducing()
        self._reading = wants
        if wants:
            self._wait_for(wants)

    def _wait_for(self, mark: int) -> None:
        """Have the kernel wake the process when `mark` bytes have arrived; at once if they have."""
        if mark != self._mark and self._plain is not None:
            self._mark = mark
            self._plain.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
            if mark > 1:
                self._factory.low_water.join(self)


classImplements(BrokerConnection, IHalfCloseableProtocol, IPushProducer)
