"""
The client of HTTP servers, by treq on Twisted: URLs as they travel, with a literal IPv6 address, a zone, a name in
Unicode or a password; no redirects, no compressed bodies, no cookies; bodies of responses up to a size, because a
server may send without end.

The connector for Spark has a copy of this module (contrib/spark/copies.py), which imports nothing of nsqtw.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

from hyperlink import EncodedURL
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

Part = bytes | memoryview
"""A part of the body of a request."""

_ACCEPT_ENCODING = b"Accept-Encoding"
_URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"


class HttpClient:
    """Sends requests by an agent."""

    def __init__(self, agent: IAgent) -> None:
        from treq.client import HTTPClient  # a broker without auth servers does not need it

        self._client = HTTPClient(_PlainAgent(agent))

    def request(
        self,
        method: str,
        url: str,
        fields: Mapping[str, str] | None = None,
        body: bytes | Sequence[Part] | None = None,
    ) -> Deferred[Any]:
        """
        Send a request with header fields and a body, also one in parts. The result is Twisted's response, whose body is
        to be read. A name and password in the URL are sent as Basic authentication. ValueError for an invalid URL; any
        error of the connection (`failures` has words for it).
        """
        prepared = _prepared(url)
        headers = Headers({name: [value] for name, value in (fields or {}).items()})
        for name, value in prepared.fields.items():
            if not headers.hasHeader(name):
                headers.setRawHeaders(name, [value])
        return self._client.request(
            method,
            prepared,
            headers=headers,
            data=cast(Any, None if body is None else _WholeBody([body] if isinstance(body, bytes) else body)),
            allow_redirects=False,
            unbuffered=True,
            reactor=cast(Any, self),  # treq asks it for the time limit of a request only, and there is none
        )


def make_client(
    reactor: IReactorTime,
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
    response: Any, limit: float, too_long: type[Exception], budget: BodyBudget | None = None
) -> Deferred[bytes]:
    """
    The body of a response. `too_long`, as soon as there are more than `limit` bytes, or when it is the largest of those
    for which `budget` does not suffice; any error of the connection. Cancelling it ends the connection, which Twisted's
    readBody does not do.
    """
    body = _Body(limit, too_long, budget)
    response.deliverBody(body)
    return body.whole


def skip_body(response: Any) -> Deferred[bytes]:
    """Read the body of a response, of any size, and keep nothing of it. As `read_body`."""
    body = _SkippedBody(0, ValueError, None)
    response.deliverBody(body)
    return body.whole


@implementer(IBodyProducer)
class _WholeBody:
    """The body of a request, written at once; treq's own takes a turn of the process's reactor for every 64 KiB."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.length = sum(map(len, parts))

    def startProducing(self, consumer: Any) -> Deferred[None]:
        for part in self._parts:
            consumer.write(part)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: the transport has the whole body already."""

    resumeProducing = stopProducing = pauseProducing


class _Body(Protocol):
    """Takes a body in."""

    def __init__(self, limit: float, too_long: type[Exception], budget: BodyBudget | None) -> None:
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


class _SkippedBody(_Body):
    """Takes a body in and keeps nothing of it."""

    def dataReceived(self, data: bytes) -> None:
        pass


class _PreparedUrl(EncodedURL):
    """
    A URL that was encoded before. treq encodes it for each request, a fifth of its work, and refuses literal IPv6
    addresses, because it encodes them as names.
    """

    wire: str
    fields: dict[str, str]
    """
    The fields that the URL needs: Host without a zone, which has a meaning on this machine only, and Authorization for
    a name and password, which are no part of the URL on the wire, nor of an error.
    """

    def to_uri(self) -> EncodedURL:
        return self

    def to_text(self, with_password: bool = False) -> str:
        return self.wire


@lru_cache(maxsize=1024)
def _prepared(url: str) -> _PreparedUrl:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        parts = parts._replace(netloc=host)
        url = parts.geturl()
    if not url.isascii() or " " in url:
        parts = parts._replace(netloc=parts.netloc.encode("idna").decode())
        url = quote(parts.geturl(), _URL_CHARACTERS)
    address, percent, _ = (parts.hostname or "").partition("%")
    prepared = _PreparedUrl(scheme=parts.scheme, host=address)
    prepared.wire, prepared.fields = url, {}
    if percent and ":" in address:
        prepared.fields["Host"] = f"[{address}]{f':{parts.port}' if parts.port else ''}"
    if at:
        prepared.fields["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
    return prepared


@implementer(IAgent)
class _PlainAgent:
    """
    An agent without what treq would do by itself: unpack bodies, of which few bytes could become very many, and send
    cookies of one answer with later requests.
    """

    def __init__(self, agent: IAgent) -> None:
        self._agent = agent

    def request(self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: Any = None) -> Any:
        """IAgent API."""
        headers = Headers() if headers is None else headers.copy()
        *own, _ = headers.getRawHeaders(_ACCEPT_ENCODING, [b""])  # the last one is treq's
        if own:
            headers.setRawHeaders(_ACCEPT_ENCODING, own)
        else:
            headers.removeHeader(_ACCEPT_ENCODING)
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_plain)


def _plain(response: Any) -> Any:
    for name in (b"Content-Encoding", b"Set-Cookie"):
        response.headers.removeHeader(name)
    return response
