"""
Connections to HTTP servers that are kept from request to request: the rules that all HTTP clients share.

A server may close a connection after any answer, and a client learns of it late. Twisted's pool keeps a connection
unless the answer has a field `Connection` that is exactly `close`, and a request that meets a closed one fails, except
GET. The rules here:

- A connection is kept as RFC 9112, section 9.3, says: not after an answer of HTTP/1.0 without `keep-alive`, not after
  `close` in any case or list. It is not kept either when bytes follow the answer.
- An idle connection on which anything has arrived, its end or bytes that nobody asked for, is not used again.
- A server can still close a connection while a request travels to it. A request on a kept connection that gets no byte
  of an answer, or 408, the answer to a connection that was idle, is repeated, once and on a new connection.
- A request on a new connection that gets no answer has failed, and so has one whose answer breaks off.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Hashable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.web._newclient import HTTP11ClientProtocol, RequestNotSent
from twisted.web.client import HTTPConnectionPool, RequestTransmissionFailed, ResponseNeverReceived

IDEMPOTENT = (b"GET", b"HEAD")
AT_LEAST_ONCE = (*IDEMPOTENT, b"POST")

_PERSISTENT_VERSION = (1, 1)
_TIMED_OUT = 408
_UNANSWERED = (RequestNotSent, RequestTransmissionFailed, ResponseNeverReceived)


class _Connection(HTTP11ClientProtocol):
    """A connection that is kept only after an answer that allows it."""

    is_new = True
    """No answer has arrived on it yet."""

    def _finishResponse(self, rest: bytes) -> None:
        self.is_new = False
        parser: Any = self._parser
        if parser is not None and (rest or not _allows_another(parser.response.version, parser.connHeaders)):
            self._currentRequest.persistent = False  # type: ignore[union-attr]
        super()._finishResponse(rest)

    def end(self) -> None:
        """Close the connection at once, also with TLS while the rest of an answer is not read."""
        self.abort()  # type: ignore[no-untyped-call]
        self.transport.abortConnection()  # type: ignore[union-attr]


class _Factory(Factory):
    """Makes connections, as the pool wants it."""

    noisy = False

    def __init__(self, when_idle: Callable[[Any], object], endpoint: str) -> None:
        self._when_idle = when_idle

    def buildProtocol(self, addr: object) -> _Connection:
        """Factory API."""
        return _Connection(self._when_idle)  # type: ignore[no-untyped-call]


class KeptConnections(HTTPConnectionPool):
    """
    A pool of connections, at most `per_server` idle ones, each for `idle_seconds`. `repeated` are the methods of
    requests that may be repeated although the server may have processed them: AT_LEAST_ONCE only where a message may
    arrive twice by contract. The body of such a request writes the same bytes each time it is started.
    """

    retryAutomatically = False
    _factory: Any = _Factory

    def __init__(
        self, reactor: IReactorTime, per_server: int, idle_seconds: float, repeated: Collection[bytes]
    ) -> None:
        super().__init__(reactor, persistent=True)  # type: ignore[no-untyped-call]
        self.maxPersistentPerHost = per_server
        self.cachedConnectionTimeout = idle_seconds  # type: ignore[assignment]
        self._repeated = repeated

    def getConnection(self, key: Hashable, endpoint: Any) -> Deferred[Any]:
        """HTTPConnectionPool API."""
        return Deferred.fromCoroutine(self._connection(key, endpoint))

    async def _connection(self, key: Hashable, endpoint: Any) -> Any:
        while True:
            connection: Any = await super().getConnection(key, endpoint)
            if connection.is_new:
                return connection
            if _is_silent(connection.transport):
                return _Kept(connection, lambda: self._newConnection(key, endpoint), self._repeated)
            connection.end()


class _Kept:
    """A kept connection, for one request. `connect` makes a new one to the same server."""

    def __init__(self, connection: Any, connect: Callable[[], Deferred[Any]], repeated: Collection[bytes]) -> None:
        self._connection = connection
        self._connect = connect
        self._repeated = repeated

    def request(self, request: Any) -> Deferred[Any]:
        """HTTP11ClientProtocol API."""
        if request.method not in self._repeated:
            return self._connection.request(request)  # type: ignore[no-any-return]
        return Deferred.fromCoroutine(self._request(request))

    async def _request(self, request: Any) -> Any:
        try:
            response = await self._connection.request(request)
        except _UNANSWERED as failure:
            if any(reason.check(CancelledError) for reason in getattr(failure, "reasons", ())):
                raise
        else:
            if response.code != _TIMED_OUT:
                return response
            self._connection.end()
        connection = await self._connect()
        return await connection.request(request)


def _allows_another(version: tuple[bytes, int, int], headers: Any) -> bool:
    """Return whether another request may follow an answer on its connection. `headers` are those of the connection."""
    fields = headers.getRawHeaders(b"Connection", ())
    options = {option.strip().lower() for field in fields for option in field.split(b",")}
    return b"close" not in options and (version[1:] >= _PERSISTENT_VERSION or b"keep-alive" in options)


def _is_silent(transport: Any) -> bool:
    """Return whether nothing has arrived on an idle connection, neither bytes nor its end."""
    while (inner := getattr(transport, "transport", None)) is not None:  # that below TLS
        transport = inner
    try:
        transport.getHandle().recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
