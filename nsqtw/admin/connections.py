"""Connections to nsqadmin: their number, and the time in which the head and the body of a request must arrive."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from nsqtw.http.responses import TOO_MANY_CONNECTIONS
from nsqtw.net.admission import ConnectionLimiter
from nsqtw.net.descriptors import HTTP_RESERVE
from nsqtw.runtime.reactor import Reactor

HEAD_SECONDS = 10.0
"""Time from the connection, or from the first byte after an answer, to the end of the head."""
BODY_SECONDS = 60.0
"""Time from the end of the head to that of the body."""


class AdminChannel(HTTPChannel):
    """A connection whose requests have deadlines. Twisted's own timeout begins anew with each byte."""

    callLater: Any
    _deadline: IDelayedCall | None = None
    _is_answering = False

    def connectionMade(self) -> None:
        """Protocol API."""
        super().connectionMade()  # type: ignore[no-untyped-call]
        self._arm(HEAD_SECONDS)

    def dataReceived(self, data: bytes) -> None:
        """Protocol API."""
        if self._deadline is None and not self._is_answering:
            self._arm(HEAD_SECONDS)
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def allHeadersReceived(self) -> None:
        """Called when the head is there."""
        self._arm(BODY_SECONDS)
        super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def allContentReceived(self) -> None:
        """Called when the whole request is there."""
        self._disarm()
        self._is_answering = True
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        """Called when a request is answered."""
        self._is_answering = False
        super().requestDone(request)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Protocol API."""
        self._disarm()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.callLater(seconds, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        self.timeoutConnection()  # type: ignore[no-untyped-call]


class AdmittedConnections(WrappingFactory):
    """
    The connections of `inner` that `limiter` admits; `protocols` are those that are open. Others are answered 503, or
    with TLS, which they would have to negotiate for it, closed.
    """

    noisy = False

    def __init__(self, inner: Any, limiter: ConnectionLimiter, reactor: Reactor, *, is_tls: bool) -> None:
        super().__init__(inner)  # type: ignore[no-untyped-call]
        self._limiter = limiter
        self._reactor = reactor
        self._is_tls = is_tls
        self._addresses: dict[Any, Any] = {}

    def buildProtocol(self, addr: Any) -> Any:
        """IProtocolFactory API."""
        if not self._limiter.enter(addr, HTTP_RESERVE):
            answer = TOO_MANY_CONNECTIONS.encode(b"HTTP/1.1", kept=False)
            return None if self._is_tls else self._limiter.refusal(self._reactor, answer)
        connection: ProtocolWrapper = super().buildProtocol(addr)
        self._addresses[connection] = addr
        return connection

    def unregisterProtocol(self, p: Any) -> None:
        """Called by a connection that is closed."""
        super().unregisterProtocol(p)  # type: ignore[no-untyped-call]
        self._limiter.leave(self._addresses.pop(p))
