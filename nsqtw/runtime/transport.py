"""
The type of a connection's transport, as this package uses it.

Twisted declares transports by zope interfaces, several for each transport; a type checker needs one type. Twisted's
transports of TCP and unix sockets, `nsqtw.net.tls_transport` and the transports of tests have these methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from twisted.internet.interfaces import IAddress, IProtocol, ITransport
from zope.interface import implementer


@implementer(ITransport)
class Transport(Protocol):
    """A stream of bytes to a peer, and back."""

    def write(self, data: bytes, /) -> None: ...

    def writeSequence(self, data: Iterable[bytes], /) -> None: ...

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...

    def getPeer(self) -> IAddress: ...

    def getHost(self) -> IAddress: ...

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def registerProducer(self, producer: object, streaming: bool, /) -> None: ...

    def unregisterProducer(self) -> None: ...


@implementer(ITransport)
class SocketTransport(Transport, Protocol):
    """A transport whose protocol can be replaced, and whose sending side can be ended: that of a socket."""

    protocol: IProtocol
    bufferSize: int
    """Bytes of a read."""

    def loseWriteConnection(self) -> None: ...


def set_socket_options(transport: object) -> None:
    """Have TCP send small writes at once, and notice a lost peer. Other transports have no such options."""
    for option in ("setTcpNoDelay", "setTcpKeepAlive"):
        if hasattr(transport, option):
            getattr(transport, option)(True)
