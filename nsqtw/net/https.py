"""HTTP over TLS: the same connections and the same routes, behind a handshake."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory
from twisted.logger import Logger

from nsqtw.net.peer import address_text
from nsqtw.net.tls import TlsTransport
from nsqtw.net.tls_names import NOT_TLS
from nsqtw.net.tls_settings import TlsSettings
from nsqtw.upgrades import Secured, StartTls

_HTTP_STARTS = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO")
_NOT_HTTPS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

_log = Logger()


class HttpsFactory(Factory):
    """Accepts TLS connections for an HTTP factory."""

    noisy = False

    def __init__(self, http: Any, tls: TlsSettings) -> None:
        self._http = http
        self._tls = tls

    def buildProtocol(self, addr: Any) -> TlsTransport | None:
        connection = self._http.buildProtocol(addr)
        if connection is None:
            return None
        transport: TlsTransport

        def failed(reason: str) -> bytes:
            text = "http: TLS handshake error from {client}: {error}"
            _log.warn(text, client=address_text(transport.getPeer()), error=reason)
            return _NOT_HTTPS if reason == NOT_TLS and transport.head in _HTTP_STARTS else b""

        transport = self._tls.transport(connection, StartTls(_begins, failed), connects=True)
        return transport

    def disconnect_all(self) -> None:
        """The broker stops. The connections are the HTTP factory's."""
        self._http.disconnect_all()


def _begins(secured: Secured) -> None:
    """The connection reads by itself from now on."""
