"""HTTP servers for tests: one keeps what it was sent, one never ends its answers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.certificates import Pair
from tests.wire import HOST


@attrs.define
class Endpoint:
    """The server: its address, and the requests it got as path, headers and body."""

    address: str
    requests: list[tuple[str, dict[str, str], bytes]] = attrs.field(factory=list)
    status: int = 200
    body: bytes = b"[]"
    fields: dict[str, str] = attrs.field(factory=dict)
    """Further header fields of each answer; a character is a byte."""
    is_posting_cut_off: bool = False
    """A POST is received, and its connection closed without an answer."""

    @property
    def documents(self) -> list[Any]:
        """The JSON of the bodies of the requests."""
        return [json.loads(body) for _, _, body in self.requests]


@contextmanager
def endpoint(pair: Pair | None = None) -> Iterator[Endpoint]:
    """Run a server while the context lasts, with `pair` one for HTTPS."""
    found = Endpoint("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not found.is_posting_cut_off:
                self._answer(body)

        def do_GET(self) -> None:
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            found.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(found.body)))
            for name, value in found.fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    found.address = f"{HOST}:{server.server_port}"
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        found.address = f"https://{found.address}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@attrs.define
class StalledEndpoint:
    """A server that sends the head of each answer, and never its body. `count` is the number of requests."""

    address: str
    count: int = 0


@contextmanager
def stalled_endpoint() -> Iterator[StalledEndpoint]:
    """Run a server while the context lasts."""
    listener = socket.create_server((HOST, 0), backlog=100)
    found = StalledEndpoint(f"{HOST}:{listener.getsockname()[1]}")
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            connection.recv(65536)
            found.count += 1
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield found
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in (listener, *held):
            connection.close()
