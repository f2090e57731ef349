"""
Clients of other HTTP servers: connections, bodies of requests, and bodies of responses up to a size, because a server
may send without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

if TYPE_CHECKING:
    from treq.client import HTTPClient


def make_client(
    reactor: Any,
    connect_timeout: float,
    policy: IPolicyForHTTPS | None = None,
    pool: HTTPConnectionPool | None = None,
) -> HTTPClient:
    """
    Make a client that gives up a connection attempt after `connect_timeout` seconds. `policy` checks certificates
    of servers; without one the system's authorities do. Without `pool` each request has a connection of its own.
    """
    from treq.client import HTTPClient  # a broker asks nsqlookupds without it

    pool = pool or HTTPConnectionPool(reactor, persistent=False)  # type: ignore[no-untyped-call]
    options = {} if policy is None else {"contextFactory": policy}
    return HTTPClient(Agent(reactor, connectTimeout=connect_timeout, pool=pool, **options))  # type: ignore[no-untyped-call]


def read_body(response: Any, limit: int, too_long: type[Exception]) -> Deferred[bytes]:
    """
    The body of a response. `too_long`, as soon as there are more than `limit` bytes; any error of the connection.
    Cancelling it ends the connection, which Twisted's readBody does not do.
    """
    body = _Body(limit, too_long)
    response.deliverBody(body)
    return body.whole


@implementer(IBodyProducer)
class BytesBody:
    """A body that is there already. It is written at once; treq's own needs the reactor of the process."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """IBodyProducer API."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """IBodyProducer API."""

    def resumeProducing(self) -> None:
        """IBodyProducer API."""

    def stopProducing(self) -> None:
        """IBodyProducer API."""


class _Body(Protocol):
    """Takes a body in."""

    def __init__(self, limit: int, too_long: type[Exception]) -> None:
        self.whole: Deferred[bytes] = Deferred(lambda _: self._break_off())
        self._limit = limit
        self._too_long = too_long
        self._received = bytearray()

    def dataReceived(self, data: bytes) -> None:
        if self.whole.called:  # what was on its way when it was broken off
            return
        self._received += data
        if len(self._received) > self._limit:
            self._received.clear()
            self.whole.errback(self._too_long(f"the answer has more than {self._limit} bytes"))
            self._break_off()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        # PotentialDataLoss: the answer said no length, and so it ends with the connection.
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(bytes(self._received))
        else:
            self.whole.errback(reason)

    def _break_off(self) -> None:
        end = getattr(self.transport, "abortConnection", None) or getattr(self.transport, "loseConnection", None)
        if end is not None:
            end()
