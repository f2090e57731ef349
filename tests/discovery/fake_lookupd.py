"""
An nsqlookupd of a test, on sockets and in threads of its own: it keeps what it is told and answers as it is bid.

    answers     to what comes over V1: `well`, or one of the MISDEEDS
    channels    what GET /channels answers, by topic; or `http_answer`, a response as bytes, None for silence
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Certificates
from tests.process import wait_until
from tests.wire import HOST

WELL, SILENT, SLOW, GARBAGE, OVERSIZED, CLOSES = "well", "silent", "slow", "garbage", "oversized", "closes"
MISDEEDS = (SILENT, SLOW, GARBAGE, OVERSIZED, CLOSES)
_SIZE = struct.Struct(">i")


def http_response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole response, after which the connection ends."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class FakeLookupd:
    """One of them. With `certificates` it speaks TLS only, and wants a certificate signed by the same authority."""

    def __init__(self, answers: str = WELL, certificates: Certificates | None = None) -> None:
        self.introductions: list[dict[str, Any]] = []
        self.commands: list[str] = []
        """All but PING, over all connections."""
        self.channels: dict[str, list[str]] = {}
        self.http_answer: bytes | None = b""
        self.questions: list[str] = []
        self._answers = answers
        self._connections: list[socket.socket] = []
        self._context = None if certificates is None else _context(certificates)
        self._is_over = threading.Event()
        self._tcp, self._http = (socket.create_server((HOST, 0)) for _ in range(2))
        self.tcp_address, self._http_port = f"{HOST}:{self._tcp.getsockname()[1]}", self._http.getsockname()[1]
        for listener, serve in ((self._tcp, self._serve), (self._http, self._serve_http)):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def flag(self) -> str:
        """For an nsqd that is to find it."""
        return f"--lookupd-tcp-address={self.tcp_address}"

    def await_commands(self, *commands: str) -> None:
        """Wait until it has been told all of these."""
        wait_until(lambda: set(commands) <= set(self.commands), f"{commands}, there is {self.commands}")

    def drop(self) -> None:
        """End all connections there are."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_over.set()
        for listener in (self._tcp, self._http):
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop()

    # -- inside

    def _accept(self, listener: socket.socket, serve: Any) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._guarded, args=(serve, connection), daemon=True).start()

    def _guarded(self, serve: Any, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._context is None:
                serve(connection)
                return
            with self._context.wrap_socket(connection, server_side=True) as secured:
                self._connections.append(secured)
                serve(secured)

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            assert stream.read(4) in (b"  V1", b"")
            for line in stream:
                command = line.decode().rstrip("\n")
                if command == "IDENTIFY":
                    (size,) = _SIZE.unpack(stream.read(_SIZE.size))
                    self.introductions.append(json.loads(stream.read(size)))
                elif command != "PING":
                    self.commands.append(command)
                self._answer(connection, command)

    def _answer(self, connection: socket.socket, command: str) -> None:
        itself = {"broadcast_address": HOST, "http_port": self._http_port, "tcp_port": 1, "version": "1.3.0"}
        answer = json.dumps(itself).encode() if command == "IDENTIFY" else b"OK"
        if self._answers == WELL or (self._answers == SLOW and command == "IDENTIFY"):
            connection.sendall(_SIZE.pack(len(answer)) + answer)
        elif self._answers == GARBAGE:
            connection.sendall(b"\x00\x00\x00\x05{{{{{HTTP/1.1 200 OK\r\n")
        elif self._answers == OVERSIZED:
            connection.sendall(_SIZE.pack(2**31 - 1) + b"x" * 100_000)
        elif self._answers == CLOSES:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            self._is_over.wait()

    def _serve_http(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            target = stream.readline().split(b" ")[1].decode()
            while stream.readline().strip():
                pass
        self.questions.append(target)
        if self.http_answer is None:
            self._is_over.wait()
        elif self.http_answer:
            connection.sendall(self.http_answer)
        else:
            (topic,) = parse_qs(urlsplit(target).query)["topic"]
            connection.sendall(http_response(json.dumps({"channels": self.channels.get(topic, [])}).encode()))


def _context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    context.load_verify_locations(certificates.authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def lookupds() -> Iterator[Any]:
    """Makes them, as FakeLookupd; none outlives this."""
    made: list[FakeLookupd] = []

    def make(*given: Any, **more: Any) -> FakeLookupd:
        made.append(FakeLookupd(*given, **more))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.close()
