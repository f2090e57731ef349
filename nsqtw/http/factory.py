"""The factory of HTTP connections, for all daemons."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.protocol import Factory

from nsqtw.http.browsers import AllowedHosts
from nsqtw.http.connection import HttpConnection
from nsqtw.http.head_cache import KnownHeads
from nsqtw.http.responses import TOO_MANY_CONNECTIONS
from nsqtw.http.routes import Decided, OneAnswer, Routes
from nsqtw.net.descriptors import HTTP_RESERVE
from nsqtw.net.limits import Limits
from nsqtw.net.line_budget import LineBudget
from nsqtw.rights import Credentials
from nsqtw.runtime.read_size import keep_reads_on_the_heap
from nsqtw.runtime.turns import Turns


class RequestAuthorizer(Protocol):
    """Lets requests in, or not."""

    def authorize(
        self, credentials: Credentials | None, needs: str, topic: str, channel: str, decided: Decided
    ) -> None:
        """
        A request with the credential of `credentials` needs something for a topic, a channel (both named) or the whole
        daemon (neither). `decided` may be called before this returns.
        """


class HttpFactory(Factory):
    """Accepts HTTP connections."""

    noisy = False

    def __init__(
        self,
        routes: Routes | OneAnswer,
        pump: Turns,
        limits: Limits,
        bearer_auth: RequestAuthorizer | None,
        hosts: AllowedHosts | None,
    ) -> None:
        self.routes = routes
        self.pump = pump
        self.limits = limits
        self.bearer_auth = bearer_auth
        self.hosts = hosts
        """The names by which clients may ask; None for any."""
        self.heads = KnownHeads()
        self.refusals = LineBudget(pump.now)
        """Limits the log lines of refused requests on routes that log no requests, like publishes."""
        self.connections: set[HttpConnection] = set()
        keep_reads_on_the_heap()

    def buildProtocol(self, addr: Any) -> Any:
        if not self.limits.connection_limiter.enter(addr, HTTP_RESERVE):
            answer = TOO_MANY_CONNECTIONS.encode(b"HTTP/1.1", kept=False)
            return self.limits.connection_limiter.refusal(self.pump.reactor, answer)
        connection = HttpConnection()
        connection.factory, connection.address = self, addr
        return connection

    def forget_heads(self) -> None:
        """Options have changed that heads were accepted by."""
        self.heads = KnownHeads()

    def disconnect_all(self) -> None:
        """The daemon stops: pending requests are answered, and every connection is closed."""
        for connection in list(self.connections):
            connection.stop()
