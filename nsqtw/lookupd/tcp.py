"""
TCP connections of nsqds: the magic, the deadlines, and the bytes of a V1 session.

A connection uses a bounded amount of memory: its input is limited to one line or one body, and it is not read from
while it does not read its responses. It uses a bounded amount of time: PIECE_BYTES of the input are processed at once,
and the rest in pieces between which other clients are served; then it is read from again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from nsqtw.lookupd.v1 import V1Context, V1Session, response
from nsqtw.net.connection import ENDED, MAGIC_BYTES, MagicConnection
from nsqtw.net.limits import Limits
from nsqtw.options.lookupd import LookupdOptions
from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.transport import SocketTransport
from nsqtw.runtime.turns import PlainTurns

MAGIC = b"  V1"
PIECE_BYTES = 512
"""The size of a piece: some 100 of the shortest commands, which take 2 ms with their log lines."""
_BAD_PROTOCOL = response(b"E_BAD_PROTOCOL")
_TOO_MANY = response(b"E_TOO_MANY_CONNECTIONS too many connections")

_log = Logger()


@implementer(IHalfCloseableProtocol, IPushProducer)
class NsqdConnection(MagicConnection):
    """One accepted connection, from `address`."""

    def __init__(self, factory: NsqdFactory, address: Any) -> None:
        super().__init__(factory.turns.reactor, factory.limits, factory.connections, address)
        self._factory = factory
        self._session: V1Session | None = None
        self._unread = b""
        """Input that is not processed yet."""
        self._is_behind = False
        """Whether it is processed in steps."""
        self._is_full = False
        """Whether responses wait."""
        self._since = 0.0
        """When it connected, or sent its last complete command."""
        self._command_count = 0

    # -- from the transport

    def makeConnection(self, transport: SocketTransport) -> None:
        self._since = self._factory.turns.now()
        super().makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        if self._end is not None:
            return
        session = self._session
        if session is None:
            session = self._choose(data)
            if session is None:
                return
            data, self._magic = self._magic[MAGIC_BYTES:], b""
        self._unread += data
        if self._is_behind:
            return
        self._do_piece(session)
        if self._unread:
            self._is_behind = True
            self.transport.pauseProducing()
            self._factory.long_work.add(self._catch_up(session))

    def readConnectionLost(self) -> None:
        self._input = ENDED
        if self._session is None:
            self._end_without_magic()
        elif not self._is_behind:
            self._do_end(self._session)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._unread = b""
        if self._session is not None:
            self._factory.long_work.add(self._session.connection_lost())
        if self._end is None and isinstance(reason.value, ConnectionLost):
            _log.error("client({client}) - {error}", client=self._remote, error=reason.getErrorMessage())

    def pauseProducing(self) -> None:
        """Responses wait: stop reading until the peer has read them."""
        self._is_full = True
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._is_full = False
        self._read_on()

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API"""
        if self._end is not None:
            return False
        options = self._factory.options
        session = self._session
        if session is not None and session.command_count != self._command_count:
            self._command_count, self._since = session.command_count, now
        elapsed = now - self._since
        if session is None and 0 < options.magic_timeout <= elapsed:
            self._log_no_magic("i/o timeout")
            self._time_out("magic-timeout")
        elif session is not None and 0 < options.idle_timeout <= elapsed:
            self._time_out("idle-timeout")
        else:
            self._check_stall(now)
        return True

    # -- inside

    def _do_piece(self, session: V1Session) -> None:
        piece, self._unread = self._unread[:PIECE_BYTES], self._unread[PIECE_BYTES:]
        session.receive_data(piece, self._factory.turns.unix_ns())
        if session.refused:
            self._limits.rejections.record(session.refused, self._remote)
        self._write(session)

    def _do_end(self, session: V1Session) -> None:
        session.receive_end()
        self._write(session)

    def _catch_up(self, session: V1Session) -> Iterator[None]:
        """Do what was read, a piece at each step."""
        while self._unread and self._end is None:
            self._do_piece(session)
            yield
        self._is_behind = False
        if self._input is ENDED and self._end is None:
            self._do_end(session)
        self._read_on()

    def _read_on(self) -> None:
        if not (self._is_behind or self._is_full or self._end is not None):
            self.transport.resumeProducing()

    def _write(self, session: V1Session) -> None:
        data = session.data_to_send()
        if data:
            self.transport.write(data)
        if session.closing:
            self.disconnect()

    def _choose(self, data: bytes) -> V1Session | None:
        """Make the session, once the magic is there."""
        if not self._take_magic(data, (MAGIC,), _BAD_PROTOCOL):
            return None
        self._since = self._factory.turns.now()
        self._session = V1Session(self._factory.context, self._factory.next_peer_id(), self._remote)
        return self._session


class NsqdFactory(Factory):
    """Accepts connections of nsqds, which are told apart by numbers."""

    noisy = False

    def __init__(self, context: V1Context, options: LookupdOptions, turns: PlainTurns, limits: Limits) -> None:
        self.context = context
        self.options = options
        self.turns = turns
        self.long_work = LongWork(turns.reactor, turns.now)
        self.limits = limits
        self.connections: set[NsqdConnection] = set()
        self.next_peer_id = count().__next__

    def buildProtocol(self, addr: Any) -> Any:
        """A NsqdConnection, a RejectedConnection of one too many, or None."""
        if not self.limits.connection_limiter.enter(addr):
            return self.limits.connection_limiter.refusal(self.turns.reactor, _TOO_MANY)
        return NsqdConnection(self, addr)

    def disconnect_all(self) -> None:
        """nsqlookupd stops: every nsqd sees the end of its connection."""
        for connection in list(self.connections):
            connection.disconnect()
