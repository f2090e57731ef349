"""
A connection whose first four bytes, the magic, name its protocol: what those of nsqd and nsqlookupd have in common.

It knows its peer, is counted and watched by the limits, collects the magic, and closes with a deadline. What its peer
sends is for the class that inherits from it. (HTTP connections do not: `runtime.flushable` says why.)

Performance: once per connection.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.net.addresses import address_text
from nsqtw.net.limits import Limits
from nsqtw.net.stalls import StallDetector
from nsqtw.runtime.flushable import Flushable
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.transport import SocketTransport, Transport, set_socket_options

MAGIC_BYTES: Final = 4
END_SECONDS: Final = 5.0
"""How long a connection that is being closed may take to read its output."""

_log = Logger()


class Input(Enum):
    """The state of what the peer sends."""

    OPEN = 0
    ENDED = 1
    """It sends no more, which the session is told after the input that is buffered."""
    IGNORED = 2
    """Whatever still comes, it is not looked at."""


OPEN, ENDED, IGNORED = Input.OPEN, Input.ENDED, Input.IGNORED


# Where this is compiled, classes of others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class MagicConnection(Flushable):
    """
    One accepted connection, from `address`, which is in `connections` while it lives: what Twisted's transports take
    for a protocol. It inherits nothing of Twisted's, with which it would gain nothing by being compiled.
    """

    def __init__(self, reactor: Reactor, limits: Limits, connections: set[Any], address: Any) -> None:
        self.transport: Transport
        self._reactor = reactor
        self._limits = limits
        self._connections = connections
        self._address = address
        self._remote = ""
        self._magic = b""
        self._input = OPEN
        self._end: Any = None
        """The timer that ends it, once it is being closed."""
        self._stall_detector = StallDetector()

    # -- from the transport

    def makeConnection(self, transport: SocketTransport) -> None:
        self.transport = transport
        self._remote = address_text(transport.getPeer())
        set_socket_options(transport)
        transport.registerProducer(self, True)
        self._connections.add(self)
        self._limits.sweeper.join(self)
        _log.info("TCP: new client({client})", client=self._remote)

    def writeConnectionLost(self) -> None:
        """Only we end the writing side, and then the whole connection."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._end is not None and self._end.active():
            self._end.cancel()
        self._connections.discard(self)
        self._limits.sweeper.leave(self)
        self._limits.connection_limiter.leave(self._address)

    def stopProducing(self) -> None:
        """The transport is closing; connectionLost follows."""

    # -- from the daemon

    def abort(self) -> None:
        """Close at once, without writing what is buffered."""
        self._limits.sweeper.leave(self)
        self.transport.abortConnection()

    def disconnect(self) -> None:
        """Close, once everything written is out; a peer that does not read it is not waited for."""
        if self._end is None:
            self._end = self._reactor.callLater(END_SECONDS, self.abort)
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API"""
        raise NotImplementedError

    # -- for the class that inherits from it

    def _take_magic(self, data: bytes, known: Container[bytes], refusal: bytes) -> bytes:
        """Return the magic, once it is there, and one of `known`; `_magic` has it then, and what came behind it."""
        self._magic += data
        if len(self._magic) < MAGIC_BYTES:
            return b""
        magic = self._magic[:MAGIC_BYTES]
        shown = magic.decode("latin-1")
        _log.info("CLIENT({client}): desired protocol magic '{magic}'", client=self._remote, magic=shown)
        if magic in known:
            return magic
        _log.error("client({client}) bad protocol magic '{magic}'", client=self._remote, magic=shown)
        self.transport.write(refusal)
        self.disconnect()
        return b""

    def _end_without_magic(self) -> None:
        """The peer sends no more, and has not named its protocol."""
        self._log_no_magic("unexpected EOF" if self._magic else "EOF")
        self.disconnect()

    def _log_no_magic(self, error: str) -> None:
        _log.error("failed to read protocol version - {error}", client=self._remote, error=error)

    def _time_out(self, option: str) -> None:
        """The peer has not named its protocol, or has not gone on, in the time that `option` gives."""
        self._limits.rejections.record(option, self._remote)
        self.disconnect()

    def _check_stall(self, now: float) -> None:
        """Close if the peer takes nothing of what is written. TLS writes by itself."""
        write_timeout = self._limits.options.write_timeout
        if write_timeout and self._stall_detector.lasts(self.transport, now) >= write_timeout:
            self._limits.rejections.record("write-timeout", self._remote)
            self.abort()
