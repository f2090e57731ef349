"""
HTTP queries of the client: one request a connection, for /lookup of nsqlookupds and the HTTP API of nsqds.

The answer is parsed by Python's `http.client`. The same code serves both event loops.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nsqtw.client.event_loop import EventLoop, Timer, Transport, reason_of
from nsqtw.client.tls import TlsStream
from nsqtw.errors import ClientLibraryError, LookupFailed

_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Answer(NamedTuple):
    """The answer to a request. The keys of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Bytes:
    """Received bytes, in the form that http.client reads from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def parse_answer(data: bytes, method: str) -> Answer:
    """Parse a complete answer. LookupFailed."""
    response = HTTPResponse(_Bytes(data), method=method)  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except (HTTPException, ValueError, OSError) as error:
        raise LookupFailed(f"the answer is no HTTP: {error!r}") from error
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


class HttpQuery:
    """One request. `run` returns the answer."""

    def __init__(
        self,
        loop: EventLoop,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = loop
        self._url = url
        self._parts = urlsplit(url)
        self._method = method
        path = self._parts.path or "/"
        target = f"{path}?{self._parts.query}" if self._parts.query else path
        fields = {"Host": self._parts.netloc.rpartition("@")[2], "Connection": "close", **(headers or {})}
        if body or method not in ("GET", "HEAD"):
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self._request = "\r\n".join(lines).encode() + body
        self._tls: TlsStream | None = None
        self._context = context
        self._transport: Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._done: Any = None
        self._failure = ""
        self._is_over = False

    async def run(self, connect_timeout: float, timeout: float) -> Answer:
        """Send the request and wait for the whole answer, up to `timeout` seconds. LookupFailed."""
        self._done = self._loop.future()
        timer: Timer = self._loop.call_later(timeout, self._time_out)
        port = self._parts.port or (443 if self._parts.scheme == "https" else 80)
        try:
            await self._loop.connect(self._parts.hostname or "", port, self, connect_timeout, "")
            await self._done
        except OSError as error:
            raise LookupFailed(f"{self._url}: {reason_of(error)}") from error
        except (ValueError, ClientLibraryError) as error:  # a host name that none can have
            raise LookupFailed(f"{self._url}: {error}") from error
        finally:
            timer.cancel()
            self._is_over = True
            if self._transport is not None:  # the query was cancelled
                self._transport.abort()
        if self._failure:
            raise LookupFailed(f"{self._url}: {self._failure}")
        return parse_answer(b"".join(self._pieces), self._method)

    # -- from the transport

    def connected(self, transport: Transport) -> None:
        """Receiver API."""
        self._transport = transport
        if self._failure or self._is_over:
            transport.abort()
            return
        if self._parts.scheme == "https":
            context = self._context or ssl.create_default_context()
            try:
                self._tls = TlsStream(context, self._parts.hostname or "")
            except ClientLibraryError as error:
                self._fail(str(error))
                return
            transport.write(self._tls.data_to_send())
        else:
            transport.write(self._request)

    def received(self, data: bytes) -> None:
        """Receiver API."""
        assert self._transport is not None
        if self._tls is not None:
            was_open = self._tls.is_open
            try:
                data = self._tls.feed(data)
            except ClientLibraryError as error:
                self._fail(str(error))
                return
            if self._tls.is_open and not was_open:
                self._tls.send(self._request)
            if out := self._tls.data_to_send():
                self._transport.write(out)
            if self._tls.failure is not None:
                self._fail(str(self._tls.failure))
                return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MAX_ANSWER_BYTES:
            self._fail("the answer is too large")

    def lost(self, reason: str) -> None:
        """Receiver API."""
        self._transport = None
        if not self._pieces and not self._failure:
            self._failure = reason or "the connection was closed"
        self._loop.resolve(self._done)

    def _time_out(self) -> None:
        self._fail("no answer in time")

    def _fail(self, text: str) -> None:
        self._failure = text
        if self._transport is not None:
            self._transport.abort()
        else:
            self._loop.resolve(self._done)
