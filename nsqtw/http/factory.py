"""The factory of HTTP connections, for all daemons."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory

from nsqtw.http.connection import HttpConnection
from nsqtw.http.owner import ConnectionOwner
from nsqtw.http.responses import TOO_MANY_CONNECTIONS
from nsqtw.net.descriptors import HTTP_RESERVE


class HttpFactory(ConnectionOwner, Factory):
    """Accepts HTTP connections."""

    noisy = False

    def buildProtocol(self, addr: Any) -> Any:
        if not self.limits.connection_limiter.enter(addr, HTTP_RESERVE):
            answer = TOO_MANY_CONNECTIONS.encode(b"HTTP/1.1", kept=False)
            return self.limits.connection_limiter.refusal(self.pump.reactor, answer)
        connection = HttpConnection()
        connection.factory, connection.address = self, addr
        return connection

    def disconnect_all(self) -> None:
        """The daemon stops: pending requests are answered, and every connection is closed."""
        for connection in list(self.connections):
            connection.stop()
