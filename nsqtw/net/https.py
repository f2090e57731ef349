"""
TLS ports: the same connections as on plain ports, behind a handshake.

A port may accept both. A handshake begins with a byte that no protocol of this package begins with, so the first byte
tells which it is; until it arrives only a deadline applies to the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.net.addresses import address_text
from nsqtw.net.admission import RejectedConnection
from nsqtw.net.limits import Limits
from nsqtw.net.tls_names import NOT_TLS
from nsqtw.net.tls_settings import TlsSettings
from nsqtw.net.tls_transport import HANDSHAKE, HANDSHAKE_SECONDS, TlsTransport
from nsqtw.runtime.transport import SocketTransport
from nsqtw.upgrades import Secured, StartTls

_HTTP_STARTS = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO")
_NOT_HTTPS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

_log = Logger()


def not_https(head: bytes) -> bytes:
    """Return the response of an HTTPS port to a client whose first bytes are not TLS."""
    return _NOT_HTTPS if head in _HTTP_STARTS else b""


class TlsFactory(Factory):
    """
    Accepts TLS connections for `inner`, and with `plain_limits`, the limits of `inner`, plain ones too. `not_tls`
    returns the response to a client without TLS, by its first five bytes; `name` is the port's name in the log.
    """

    noisy = False

    def __init__(
        self,
        inner: Any,
        tls: TlsSettings,
        not_tls: Callable[[bytes], bytes] = not_https,
        *,
        name: str = "http",
        plain_limits: Limits | None = None,
    ) -> None:
        self._inner = inner
        self._tls = tls
        self._not_tls = not_tls
        self._name = name
        self._plain_limits = plain_limits

    def buildProtocol(self, addr: Any) -> Any:
        connection = self._inner.buildProtocol(addr)
        if connection is None or (self._plain_limits is not None and isinstance(connection, RejectedConnection)):
            return connection
        if self._plain_limits is None:
            return self._transport(connection)
        return Undecided(connection, self._transport, self._plain_limits, addr)

    def disconnect_all(self) -> None:
        """The daemon stops. The connections are the inner factory's."""
        self._inner.disconnect_all()

    def _transport(self, connection: Any) -> TlsTransport:
        transport: TlsTransport

        def failed(reason: str) -> bytes:
            text = f"{self._name}: TLS handshake error from {{client}}: {{error}}"
            _log.warn(text, client=address_text(transport.getPeer()), error=reason)
            return self._not_tls(transport.head) if reason == NOT_TLS else b""

        transport = self._tls.transport(connection, StartTls(_begins, failed), connects=True)
        return transport


class Undecided(Protocol):
    """
    A connection that has sent no byte yet. `connection` gets it then, directly or behind the transport that `secured`
    makes.
    """

    transport: SocketTransport

    def __init__(self, connection: Any, secured: Callable[[Any], TlsTransport], limits: Limits, address: Any) -> None:
        self._connection = connection
        self._secured = secured
        self._limits = limits
        self._address = address
        self._began = -1.0

    def connectionMade(self) -> None:
        self._limits.sweeper.join(self)

    def dataReceived(self, data: bytes) -> None:
        self._limits.sweeper.leave(self)
        connection, transport = self._connection, self.transport
        if data[0] == HANDSHAKE:
            connection = self._secured(connection)
        transport.protocol = connection
        connection.makeConnection(transport)
        connection.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._limits.sweeper.leave(self)
        self._limits.connection_limiter.leave(self._address)

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API"""
        if self._began < 0:
            self._began = now
        elif now - self._began >= HANDSHAKE_SECONDS:
            self.abort()
        return True

    def abort(self) -> None:
        """End at once."""
        self.transport.abortConnection()


def _begins(secured: Secured) -> None:
    """The connection reads by itself from now on."""
