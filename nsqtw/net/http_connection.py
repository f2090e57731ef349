"""
twisted.web's HTTP connection, where NSQ's clients expect another behaviour.

- `Expect: 100-continue` is answered only when the body is wanted; when the request is refused at once the connection
  is closed, because nobody can say whether a body follows.
- HTTP/1.0 with `Connection: keep-alive` is kept.
- A client that ends its side of the connection after its request still gets the answer.
- There is no idle timeout. nsqd has none: publishers keep connections open for hours, and one that is closed while
  the next publish is on its way makes the client guess whether it arrived. A peer that is gone is found by TCP's
  keep-alive probes.

Twisted tells the request line only once the body is there, so `_command`, `_path` and `_version` are read here;
and `_respondToBadRequestAndDisconnect` is the only door to what is answered to a client that speaks no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.web.http import HTTPChannel
from zope.interface import implementer

from nsqtw.net.http_answers import HEADERS_TOO_LARGE, MALFORMED, Answer
from nsqtw.net.http_request import HttpRequest

if TYPE_CHECKING:
    from nsqtw.net.http_api import HttpFactory

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@implementer(IHalfCloseableProtocol)
class HttpConnection(HTTPChannel):
    """One accepted connection, made by `factory`."""

    factory: HttpFactory
    requestFactory = HttpRequest  # type: ignore[assignment]
    transport: Any
    peer_is_done = False
    """Whether the client sends no more. It may still read, or be gone."""
    _is_over = False
    _write_some: Callable[[bytes], object] | None = None

    # -- from the transport

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        if hasattr(self.transport, "setTcpKeepAlive"):
            self.transport.setTcpKeepAlive(True)
        self._write_some = getattr(self.transport, "writeSomeData", None)

    def readConnectionLost(self) -> None:
        self.peer_is_done = True
        self._leave_when_done()

    def writeConnectionLost(self) -> None:
        """Only we end the writing side, and then the whole connection."""

    # -- from requests

    def send(self, data: bytes) -> None:
        """
        Write `data`. As long as the socket takes all of it at once, without a round through the reactor, which for an
        answer of this size costs more than making it: a publish takes 40 us with this and 46 without.
        """
        if self._write_some is not None:
            written = self._write_some(data)
            if written == len(data):
                return
            self._write_some = None  # the transport has something to write from now on, and knows about order
            if isinstance(written, int):
                data = data[written:]
        self.transport.write(data)

    # -- from HTTPChannel

    def allHeadersReceived(self) -> None:
        request: HttpRequest = self.requests[-1]
        fields, version = request.requestHeaders, self._version
        self.persistent = _persists(fields.get(b"Connection"), version)
        answer = request.begin(self._command, self._path, version, self.length)
        if b"Expect" in fields and fields[b"Expect"].lower() == b"100-continue" and version == b"HTTP/1.1":
            if answer is None:
                self.send(_CONTINUE)
            else:
                self._end(request, answer)
        elif answer is MALFORMED:
            self._end(request, answer)
        elif answer is not None:
            request.answer(answer)

    def requestDone(self, request: HttpRequest) -> None:
        if self._is_over:
            return
        super().requestDone(request)  # type: ignore[no-untyped-call]
        if self.peer_is_done:
            self._leave_when_done()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._end(self._last_request(), HEADERS_TOO_LARGE)

    def _respondToBadRequestAndDisconnect(self) -> None:
        request = self._last_request()
        self._end(request, MALFORMED if request is None else request.broken())

    # -- inside

    def _last_request(self) -> HttpRequest | None:
        return self.requests[-1] if self.requests else None

    def _end(self, request: HttpRequest | None, answer: Answer) -> None:
        """Answer, unless that is done, and close."""
        self.persistent = False
        self._is_over = True
        if request is None:
            self.send(answer.encode(b"HTTP/1.1", kept=False))
        elif not request.is_answered:
            request.answer(answer)
        self.loseConnection()  # type: ignore[no-untyped-call]

    def _leave_when_done(self) -> None:
        """The peer sends no more: close, unless a request is still to be answered."""
        if not (self.requests and self.requests[-1].is_complete):
            self.loseConnection()  # type: ignore[no-untyped-call]


def _persists(field: bytes | None, version: bytes) -> bool:
    """Whether another request may follow, by what the Connection field says."""
    words = [word.strip() for word in field.lower().split(b",")] if field else []
    if version == b"HTTP/1.1":
        return b"close" not in words
    return b"keep-alive" in words and b"close" not in words
