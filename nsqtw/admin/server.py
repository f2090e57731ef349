"""The HTTP server of nsqadmin: limits on bodies, log lines of requests, and compression."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.web.resource import EncodingResourceWrapper, IResource
from twisted.web.server import GzipEncoderFactory, Request, Site

from nsqtw.admin.connections import AdminChannel
from nsqtw.options.addresses import join_host_port
from nsqtw.options.texts import duration_text
from nsqtw.runtime.reactor import Reactor

WebRequest = Any
"""A request of twisted.web, whose methods have no types."""
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Bytes of the body of a request of a user that may publish."""
MAX_SMALL_BODY_BYTES = 256 * 1024
"""Bytes of the body of other requests, such as that of a login. Its user is looked for when it is there."""
IDLE_SECONDS = 60.0
_TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_AMBIGUOUS = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_COMPRESSION_LEVEL = 5
_EVENTS = b"text/event-stream"

_log = Logger()


class AdminRequest(Request):
    """A request that knows when it began, and whose body has a limit."""

    began_ns = 0
    _limit = MAX_SMALL_BODY_BYTES
    _received = 0
    _is_refused = False

    def gotLength(self, length: int | None) -> None:
        """Called by the channel when the headers are there."""
        self.began_ns = time.monotonic_ns()
        super().gotLength(length)  # type: ignore[no-untyped-call]
        channel: Any = self.channel
        self._limit = channel.site.body_limit(self)
        if self._is_ambiguous():
            self._refuse(_AMBIGUOUS)
        elif length is not None and length > self._limit:
            self._refuse(_TOO_LARGE)

    def getHeader(self, key: Any) -> Any:
        """Return a header; None without it. The bytes of a name that are no UTF-8 are replaced."""
        if not isinstance(key, str):
            return super().getHeader(key)
        value: bytes | None = super().getHeader(key.encode("latin-1"))
        return None if value is None else value.decode("utf-8", "replace")

    def getRequestHostname(self) -> bytes:
        """Return the host that the client asks, without the port."""
        if self.requestHeaders.hasHeader(b"Host"):
            name: bytes = super().getRequestHostname()  # type: ignore[no-untyped-call]
            return name
        host: str = getattr(self.getHost(), "host", "localhost")  # type: ignore[no-untyped-call]
        return host.encode("ascii")

    def handleContentChunk(self, data: bytes) -> None:
        """Called by the channel with a part of the body."""
        self._received += len(data)
        if self._received > self._limit and not self._is_refused:
            self._refuse(_TOO_LARGE)
        if not self._is_refused:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]

    def process(self) -> None:
        """Called by the channel when the whole request is there."""
        if not self._is_refused:
            super().process()  # type: ignore[no-untyped-call]

    def _is_ambiguous(self) -> bool:
        """Return whether a program on the way may see another host, or another end of the body."""
        hosts, encodings = (self.requestHeaders.getRawHeaders(name, []) for name in (b"Host", b"Transfer-Encoding"))
        return len(hosts) > 1 or [encoding.lower() for encoding in encodings] not in ([], [b"chunked"])

    def _refuse(self, answer: bytes) -> None:
        self._is_refused = True
        channel: Any = self.channel
        channel.transport.write(answer)
        channel.loseConnection()


class AdminSite(Site):
    """The server of a resource. `body_limit` returns the bytes that the body of a request may have, from its head."""

    noisy = False

    def __init__(self, resource: IResource, reactor: Reactor, body_limit: Callable[[WebRequest], int]) -> None:
        encoded = EncodingResourceWrapper(resource, [_Gzip()])  # type: ignore[no-untyped-call]
        super().__init__(encoded, requestFactory=AdminRequest, timeout=IDLE_SECONDS, reactor=reactor)  # type: ignore[no-untyped-call]
        self.protocol: Any = AdminChannel
        self.body_limit = body_limit

    def acceptableProtocols(self) -> list[bytes]:
        """IProtocolNegotiationFactory API."""
        return [b"http/1.1"]

    def log(self, request: WebRequest) -> None:
        """Log a request that was answered."""
        peer = request.getClientAddress()
        _log.info(
            "{status} {method} {target} ({client}) {elapsed}",
            status=request.code,
            method=request.method.decode("latin-1"),
            target=request.uri.decode("latin-1"),
            client=join_host_port(peer.host, peer.port) if hasattr(peer, "host") else "",
            elapsed=duration_text(time.monotonic_ns() - request.began_ns),
        )


class _Gzip(GzipEncoderFactory):
    """Compression of all answers but streams of events, which must not wait for more of them."""

    compressLevel = _COMPRESSION_LEVEL

    def encoderForRequest(self, request: WebRequest) -> Any:
        """_IRequestEncoderFactory API."""
        request.setHeader(b"Vary", b"Accept-Encoding")
        if _EVENTS in (request.requestHeaders.getRawHeaders(b"Accept", [b""])[0]):
            return None
        return super().encoderForRequest(request)  # type: ignore[no-untyped-call]
