"""
Clients of other HTTP servers: connections, bodies of requests, and bodies of responses up to a size, because a server
may send without end.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

from nsqtw.http.requests import Requests


class HttpClient:
    """Makes requests by an agent, whose headers and bodies are in memory."""

    def __init__(self, agent: IAgent) -> None:
        self._requests = Requests(agent)

    def request(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        credentials: tuple[str, str] | None = None,
    ) -> Deferred[Any]:
        """
        Send a request; the result is Twisted's response, whose body is to be read. `credentials` are name and password
        of Basic authentication. Any error of the connection.
        """
        fields = Headers({name: [value] for name, value in (headers or {}).items()})
        if credentials is not None:
            encoded = b64encode(":".join(credentials).encode())
            fields.setRawHeaders(b"Authorization", [b"Basic " + encoded])
        return self._requests.send(method, url, fields, None if body is None else BytesBody(body))


def make_client(
    reactor: Any,
    connect_timeout: float,
    policy: IPolicyForHTTPS | None = None,
    pool: HTTPConnectionPool | None = None,
) -> HttpClient:
    """
    Make a client that gives up a connection attempt after `connect_timeout` seconds. `policy` checks certificates
    of servers; without one the system's authorities do. Without `pool` each request has a connection of its own.
    """
    pool = pool or HTTPConnectionPool(reactor, persistent=False)  # type: ignore[no-untyped-call]
    options = {} if policy is None else {"contextFactory": policy}
    return HttpClient(Agent(reactor, connectTimeout=connect_timeout, pool=pool, **options))  # type: ignore[no-untyped-call]


class BodyBudget:
    """The bytes of all bodies that are received at the same time, or kept for a while. At most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._receiving: set[_Body] = set()
        self._kept = 0

    @property
    def used(self) -> int:
        """The bytes that count now."""
        return self._kept + sum(body.size for body in self._receiving)

    def keep(self, size: int) -> None:
        """Count the bytes of a body that was received until they are freed."""
        self._kept += size

    def free(self, size: int) -> None:
        """Count the bytes of a body no more."""
        self._kept -= size

    def enter(self, body: _Body) -> None:
        """Count a body that is received."""
        self._receiving.add(body)

    def leave(self, body: _Body) -> None:
        """Count a body no more, which was received or has failed."""
        self._receiving.discard(body)

    def check(self) -> None:
        """Break off the largest bodies while there are too many bytes."""
        while self._receiving and self.used > self._limit:
            largest = max(self._receiving, key=lambda body: body.size)
            largest.refuse(f"the answers of all servers together have more than {self._limit} bytes")


def read_body(
    response: Any, limit: int, too_long: type[Exception], budget: BodyBudget | None = None
) -> Deferred[bytes]:
    """
    The body of a response. `too_long`, as soon as there are more than `limit` bytes, or when it is the largest of those
    for which `budget` does not suffice; any error of the connection. Cancelling it ends the connection, which Twisted's
    readBody does not do.
    """
    body = _Body(limit, too_long, budget)
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

    def __init__(self, limit: int, too_long: type[Exception], budget: BodyBudget | None) -> None:
        self.whole: Deferred[bytes] = Deferred(lambda _: self._break_off())
        self._limit = limit
        self._too_long = too_long
        self._received = bytearray()
        self._budget = budget
        if budget is not None:
            budget.enter(self)

    @property
    def size(self) -> int:
        """The bytes so far."""
        return len(self._received)

    def dataReceived(self, data: bytes) -> None:
        if self.whole.called:  # what was on its way when it was broken off
            return
        self._received += data
        if len(self._received) > self._limit:
            self.refuse(f"the answer has more than {self._limit} bytes")
        elif self._budget is not None:
            self._budget.check()

    def refuse(self, reason: str) -> None:
        """Take no more of a body that is too long."""
        self._leave()
        self.whole.errback(self._too_long(reason))
        self._break_off()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        received = bytes(self._received)
        self._leave()
        # PotentialDataLoss: the answer said no length, and so it ends with the connection.
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(received)
        else:
            self.whole.errback(reason)

    def _leave(self) -> None:
        self._received.clear()
        if self._budget is not None:
            self._budget.leave(self)

    def _break_off(self) -> None:
        self._leave()
        end = getattr(self.transport, "abortConnection", None) or getattr(self.transport, "loseConnection", None)
        if end is not None:
            end()
