"""
Admission of connections: limits on all connections, on those of one address, and on file descriptors.

TCP, HTTP and HTTPS share one `ConnectionLimiter`. The first 64 bits of an IPv6 address count as one address, because a
network usually owns all addresses behind them. Clients of unix sockets have no address.

A rejected client gets an error in the protocol of its port, and a second to read it. When descriptors are short it does
not: the connection is closed before the next one is accepted, because the connections of one turn could be more than
the descriptors left.

`Rejections` counts the refused and closed connections of each limit. It logs the first one of a limit at once, and then
at most one line in LINE_SECONDS with the number since the line before, so that a flood does not fill the log.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.tcp import Connection as SocketConnection
from twisted.logger import Logger
from zope.interface import implementer

from nsqtw.net.addresses import IPV4_MAPPED, address_text
from nsqtw.net.descriptors import Descriptors
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.transport import SocketTransport

READING_SECONDS = 1.0
"""Time to read why."""
MAX_READING = 64
"""The number of connections of each address."""
_NETWORK_BYTES = 8


class ConnectionLimiterOptions(Protocol):
    """The options that limit connections."""

    max_connections: int
    max_connections_per_address: int


class ConnectionLimiter:
    """Counts connections. `descriptors` is None where descriptors are not limited."""

    def __init__(
        self, options: ConnectionLimiterOptions, rejections: Rejections, descriptors: Descriptors | None
    ) -> None:
        self._options = options
        self._turned_away = rejections
        self._descriptors = descriptors
        self.count = 0
        self.by_address: dict[str, int] = {}
        self.reading_count = 0
        """Refused connections that are still there."""

    def enter(self, address: Any, reserve: int = 0) -> bool:
        """
        Return whether a new connection from `address` may stay; then `leave` when it is gone. It may have one of
        `reserve` descriptors that others may not have.
        """
        source = _source(address)
        limit = self._reached(source, reserve)
        if limit:
            self._turned_away.record(limit, address_text(address))
            return False
        self.count += 1
        if source:
            self.by_address[source] = self.by_address.get(source, 0) + 1
        return True

    def leave(self, address: Any) -> None:
        """An admitted connection is closed."""
        source = _source(address)
        self.count -= 1
        if source:
            remaining = self.by_address.pop(source) - 1
            if remaining:
                self.by_address[source] = remaining

    def refusal(self, reactor: Reactor, answer: bytes) -> RejectedConnection | None:
        """
        Return the protocol of a rejected connection, which gives the client time to read `answer`; None for no such
        time.
        """
        is_short = self._descriptors is not None and self._descriptors.are_short()
        return None if is_short or self.reading_count >= MAX_READING else RejectedConnection(self, reactor, answer)

    def _reached(self, source: str, reserve: int) -> str:
        """The option whose limit keeps another connection from `source` out; empty for none."""
        options = self._options
        if options.max_connections and self.count >= options.max_connections:
            return "max-connections"
        of_one = options.max_connections_per_address
        if of_one and source and self.by_address.get(source, 0) >= of_one:
            return "max-connections-per-address"
        if self._descriptors is not None and self._descriptors.are_short(reserve):
            return "max-connections"
        return ""


@implementer(IHalfCloseableProtocol)
class RejectedConnection(TwistedProtocol):
    """A connection over a limit of `connection_limiter`. Over TLS it is closed without a handshake."""

    transport: SocketTransport

    def __init__(self, connection_limiter: ConnectionLimiter, reactor: Reactor, answer: bytes) -> None:
        self._limiter = connection_limiter
        self._reactor = reactor
        self._answer = answer
        self._end: Any = None

    def connectionMade(self) -> None:
        is_plain = isinstance(self.transport, SocketConnection)
        if not is_plain:
            self.transport.abortConnection()
            return
        self._limiter.reading_count += 1
        self._end = self._reactor.callLater(READING_SECONDS, self.transport.abortConnection)
        self.transport.write(self._answer)
        self.transport.loseWriteConnection()

    def readConnectionLost(self) -> None:
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """The error is sent; input is read until the client closes, because closing at once would discard the error."""

    def connectionLost(self, reason: Any = None) -> None:
        if self._end is not None:
            self._limiter.reading_count -= 1
            if self._end.active():
                self._end.cancel()


def _source(address: Any) -> str:
    if isinstance(address, IPv4Address):
        return address.host
    if isinstance(address, IPv6Address):
        host = address.host.partition("%")[0]
        if host.startswith(IPV4_MAPPED):
            return host.removeprefix(IPV4_MAPPED)
        network = socket.inet_pton(socket.AF_INET6, host)[:_NETWORK_BYTES]
        return socket.inet_ntop(socket.AF_INET6, network + bytes(_NETWORK_BYTES))
    return ""


LINE_SECONDS = 10.0

_log = Logger()


class Rejections:
    """Counts by the name of the option that sets the limit. `now` is a clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.counts: dict[str, int] = {}
        self._logged: dict[str, tuple[float, int]] = {}

    def record(self, limit: str, remote: str) -> None:
        """Count one more; `remote` is its address."""
        count = self.counts[limit] = self.counts.get(limit, 0) + 1
        now = self._now()
        logged_at, logged_count = self._logged.get(limit, (-LINE_SECONDS, 0))
        if now - logged_at >= LINE_SECONDS:
            self._logged[limit] = (now, count)
            text = "LIMIT: client({client}) is over --{limit}; {count} since the last such line"
            _log.warn(text, client=remote, limit=limit, count=count - logged_count)
