"""
HTTP servers that close connections, each in a way of its own, on real sockets.

SERVERS answer every request that they read, except where the client could not know that its connection was closed: a
client has an answer to each request, some of them on a second connection. FAILING never answer a whole request: a
client has no answer.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, BinaryIO

from tests.wire import ANSWER_SECONDS, HOST

_IDLE_SECONDS = 0.002
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Peer:
    """A connection of a client, as a server sees it."""

    def __init__(self, server: ClosingServer, connection: socket.socket, input: BinaryIO) -> None:
        self._server = server
        self._connection = connection
        self._input = input
        self._request: tuple[str, bytes] | None = None

    def read(self) -> bool:
        """Read a request. Returns whether there is one."""
        line = self._input.readline()
        if not line:
            return False
        length = 0
        while (field := self._input.readline()).strip():
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self._request = line.decode().rpartition(" ")[0], self._input.read(length)
        self._server.note(self._server.received, self._request)
        return True

    def answer(
        self,
        *fields: str,
        status: str = "200 OK",
        version: str = "1.1",
        has_length: bool = True,
        more: bytes = b"",
    ) -> None:
        """Answer the request that was read, and send `more` with the answer."""
        body = self._server.body
        lines = [f"HTTP/{version} {status}", *fields, *([f"Content-Length: {len(body)}"] * has_length), "", ""]
        if status == "200 OK" and self._request is not None:
            self._server.note(self._server.answered, self._request)
            self._request = None
        self.send("\r\n".join(lines).encode() + body + more)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        with suppress(OSError):
            self._connection.sendall(data)

    def is_idle(self) -> bool:
        """Wait a moment for another request; whether there is none."""
        return not wait([self._connection], _IDLE_SECONDS)

    def reset(self) -> None:
        """Let the end of the connection be a reset."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def end_writing(self) -> None:
        """Close the server's half, and read on."""
        self._connection.shutdown(socket.SHUT_WR)
        while self._connection.recv(65536):
            pass


Behaviour = Callable[[Peer], object]
"""What a server does with one connection, which is closed afterwards."""
SERVERS: dict[str, Behaviour] = {}
FAILING: dict[str, Behaviour] = {}


class ClosingServer:
    """A running server. `received` and `answered` are requests: the first line without the version, and the body."""

    def __init__(self, behaviour: Behaviour, body: bytes, tls: ssl.SSLContext | None) -> None:
        self.body = body
        self.received: list[tuple[str, bytes]] = []
        self.answered: list[tuple[str, bytes]] = []
        self.connections = self.closed = 0
        self._behaviour = behaviour
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server((HOST, 0), backlog=512)
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        self._start(self._accept)

    def note(self, requests: list[tuple[str, bytes]], request: tuple[str, bytes]) -> None:
        """Note a request."""
        with self._lock:
            requests.append(request)

    def close(self) -> None:
        """End all connections and threads."""
        self._listening.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                connection.settimeout(ANSWER_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self.connections += 1
                    self._open.add(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:  # the client has closed it
            stream = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            with stream, stream.makefile("rb") as input:
                self._behaviour(Peer(self, stream, input))
        with self._lock:
            self._open.discard(connection)
            self.closed += 1


@contextmanager
def closing_server(
    behaviour: Behaviour, body: bytes = b"OK", tls: ssl.SSLContext | None = None
) -> Iterator[ClosingServer]:
    """Run a server that answers with `body`, with TLS if `tls` is given."""
    server = ClosingServer(behaviour, body, tls)
    try:
        yield server
    finally:
        server.close()


def _server(table: dict[str, Behaviour]) -> Callable[[Behaviour], Behaviour]:
    def add(behaviour: Behaviour) -> Behaviour:
        table[behaviour.__name__.replace("_", " ")] = behaviour
        return behaviour

    return add


def _closes_after(*fields: str, **form: Any) -> Behaviour:
    return lambda peer: peer.read() and peer.answer(*fields, **form)


SERVERS["HTTP/1.0"] = _closes_after(version="1.0")
SERVERS["HTTP/1.0 to the end of the connection"] = _closes_after(version="1.0", has_length=False)
SERVERS["HTTP/1.1 to the end of the connection"] = _closes_after(has_length=False)
SERVERS["closes in silence"] = _closes_after()
for _field in ("Connection: close", "Connection: Close", "connection: CLOSE", "CONNECTION: te, Close"):
    SERVERS[_field] = _closes_after(_field)


@_server(SERVERS)
def keeps_connections(peer: Peer) -> None:
    while peer.read():
        peer.answer()


@_server(SERVERS)
def keeps_them_with_http_1_0(peer: Peer) -> None:
    while peer.read():
        peer.answer("Connection: Keep-Alive", version="1.0")


@_server(SERVERS)
def says_continue_first(peer: Peer) -> None:
    while peer.read():
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.answer()


@_server(SERVERS)
def says_close_and_reads_on(peer: Peer) -> None:
    peer.read()
    peer.answer("Connection: Close")
    while peer.read():
        pass


@_server(SERVERS)
def closes_its_half(peer: Peer) -> None:
    peer.read()
    peer.answer()
    peer.end_writing()


@_server(SERVERS)
def closes_when_idle(peer: Peer) -> None:
    while peer.read():
        peer.answer()
        if peer.is_idle():
            return


@_server(SERVERS)
def resets_when_idle(peer: Peer) -> None:
    while peer.read():
        peer.answer()
        if peer.is_idle():
            peer.reset()
            return


@_server(SERVERS)
def says_408_when_idle(peer: Peer) -> None:
    while peer.read():
        peer.answer()
        if peer.is_idle():
            peer.answer("Connection: close", status="408 Request Timeout")
            return


@_server(SERVERS)
def closes_at_the_second_request(peer: Peer) -> None:
    if peer.read():
        peer.answer()
        peer.read()


@_server(SERVERS)
def resets_at_the_second_request(peer: Peer) -> None:
    if peer.read():
        peer.answer()
        peer.read()
        peer.reset()


@_server(SERVERS)
def says_408_at_the_second_request(peer: Peer) -> None:
    if peer.read():
        peer.answer()
        if peer.read():
            peer.answer("Connection: close", status="408 Request Timeout")


@_server(SERVERS)
def sends_more_than_the_answer(peer: Peer) -> None:
    while peer.read():
        peer.answer(more=b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")


@_server(FAILING)
def closes_at_once(peer: Peer) -> None:
    pass


@_server(FAILING)
def closes_without_an_answer(peer: Peer) -> None:
    peer.read()


@_server(FAILING)
def resets_without_an_answer(peer: Peer) -> None:
    peer.read()
    peer.reset()


@_server(FAILING)
def half_a_head(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-")


@_server(FAILING)
def half_a_body(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@_server(FAILING)
def half_of_the_chunks(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
