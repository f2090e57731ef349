"""
HTTP queries of the client: one request a connection, for /lookup of nsqlookupds and the HTTP API of nsqds.

The answer is parsed by Python's `http.client`. It ends where its length says, because a server may keep the connection
although it was asked to close it. The same code serves both event loops.
"""

from __future__ import annotations

import io
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from nsqtw.client.event_loop import EventLoop, Timer, Transport, reason_of
from nsqtw.client.tls import TlsStream
from nsqtw.errors import ClientLibraryError, LookupFailed

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_HEAD_BYTES = 64 * 1024
"""Bytes up to which the length of an answer is looked for; one with a larger head ends with its connection."""
_ENDS_OF_HEAD = (b"\n\r\n", b"\n\n")
_ZONE = re.compile(r"%[^\]]*\]")
_LAST_CHUNK = b"0\r\n\r\n"


class Answer(NamedTuple):
    """The answer to a request. The keys of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Bytes:
    """Received bytes, in the form that http.client reads from."""

    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)

    def makefile(self, mode: str) -> io.BytesIO:
        return self.file


def request_bytes(url: SplitResult, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a request for a URL, after which the server is to close the connection."""
    path = url.path or "/"
    target = f"{path}?{url.query}" if url.query else path
    # A zone has a meaning on this machine only.
    host = _ZONE.sub("]", url.netloc.rpartition("@")[2])
    fields = {"Host": host, "Connection": "close", **headers}
    if body or method not in ("GET", "HEAD"):
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def parse_answer(data: bytes, method: str) -> Answer:
    """Parse an answer, which must be complete. LookupFailed."""
    if not data:
        raise LookupFailed("the connection was closed without an answer")
    read = _Bytes(data)
    response = HTTPResponse(read, method=method)  # type: ignore[arg-type]
    try:
        response.begin()
        # http.client takes the end of the bytes for that of the head.
        if not data[: read.file.tell()].endswith(_ENDS_OF_HEAD):
            raise IncompleteRead(data)
        body = response.read()
    except IncompleteRead as error:
        raise LookupFailed("the connection was closed before the end of the answer") from error
    except (HTTPException, ValueError, OSError) as error:
        raise LookupFailed("the answer is no HTTP; is this the HTTP port?") from error
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


class AnswerBytes:
    """The bytes of the answer to a request of `method`. LookupFailed when they are more than `most`."""

    def __init__(self, method: str, most: int = MAX_ANSWER_BYTES) -> None:
        self.data = bytearray()
        self._method = method
        self._most = most
        self._size: int | None = None
        self._is_chunked = False

    def add(self, data: bytes) -> bool:
        """Take further bytes. Returns whether the answer is complete; without a length it ends with the connection."""
        self.data += data
        if len(self.data) > self._most:
            raise LookupFailed("the answer is too large")
        if self._size is None and not self._is_chunked and len(self.data) <= _MAX_HEAD_BYTES:
            self._read_head()
        if self._is_chunked and self.data.endswith(_LAST_CHUNK):
            with suppress(LookupFailed):  # the body of a chunk may end like that
                parse_answer(bytes(self.data), self._method)
                return True
        return self._size is not None and len(self.data) >= self._size

    def _read_head(self) -> None:
        read = _Bytes(bytes(self.data))
        response = HTTPResponse(read, method=self._method)  # type: ignore[arg-type]
        with suppress(HTTPException, ValueError, OSError):  # it is not complete, or no HTTP
            response.begin()
            end = read.file.tell()
            if self.data[:end].endswith(_ENDS_OF_HEAD):
                self._is_chunked = bool(response.chunked)
                self._size = None if response.length is None else end + response.length


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
        self._request = request_bytes(self._parts, method, headers or {}, body)
        self._tls: TlsStream | None = None
        self._context = context
        self._transport: Transport | None = None
        self._received = AnswerBytes(method)
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
        return parse_answer(bytes(self._received.data), self._method)

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
        try:
            if self._received.add(data):
                self._loop.resolve(self._done)
        except LookupFailed as error:
            self._fail(str(error))

    def lost(self, reason: str) -> None:
        """Receiver API."""
        self._transport = None
        if not self._received.data and not self._failure:
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
