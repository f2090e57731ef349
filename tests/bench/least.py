#!/usr/bin/env python3
"""
A server that does the least a broker can do for a publish: it reads, appends what it read to a file, and answers OK.

    .venv/bin/python -m tests.bench --nsqd tests/bench/least.py --peer /path/to/nsqd --only pub-8

It takes nsqd's flags, as far as the bench gives them, and the publishing cases over TCP, where a connection sends the
same payload again and again. Nothing is parsed, kept, delivered or checked. So what it reaches beside a broker is what
the machine, its kernel and this load generator leave for any server of one thread; in C it is not a tenth more.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

_OK = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
_SIZE = struct.Struct(">i")
_RECEIVE_BYTES = 120_000
"""Less than 128 KiB: glibc maps and unmaps a larger block for each `recv`."""
_SPINS = 200
"""Polls, of 0.2 us or so each, before it sleeps: a client that waits for its OK answers sooner than it would wake."""


@dataclass
class Line:
    """One connection: how long its payload is, how many messages that has, and what came of the next one."""

    socket: socket.socket
    payload_bytes: int = 0
    messages: int = 0
    come: int = 0

    def greet(self) -> None:
        """Take magic and IDENTIFY."""
        line = self._line()
        assert line.endswith(b"IDENTIFY\n"), line
        self._exactly(_SIZE.unpack(self._exactly(_SIZE.size))[0])
        self.socket.sendall(_OK)

    def learn(self) -> None:
        """Take the first payload, and note what it is."""
        line = self._line()
        size = self._exactly(_SIZE.size)
        body = self._exactly(_SIZE.unpack(size)[0])
        self.messages = _SIZE.unpack_from(body)[0] if line.startswith(b"MPUB") else 1
        self.payload_bytes = len(line) + len(size) + len(body)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += self._exactly(1)
        return line

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            parts += self.socket.recv(count - len(parts), socket.MSG_WAITALL)
        return bytes(parts)


class Least:
    """Both listeners, on free ports, and one file."""

    def __init__(self, data_path: str) -> None:
        self.messages = 0
        self._file = os.open(os.path.join(data_path, "all.log"), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._lines: dict[int, Line] = {}
        counter = self

        class Admin(BaseHTTPRequestHandler):
            """What the bench asks of a broker: the topic that was made last has all that came since."""

            def do_GET(self) -> None:
                self._answer({"topics": [{"message_count": counter.messages, "depth": 0, "channels": []}]})

            def do_POST(self) -> None:
                if self.path.startswith("/topic/create"):
                    counter.messages = 0
                self._answer(None)

            def log_message(self, format: str, *arguments: Any) -> None: ...

            def _answer(self, document: Any) -> None:
                content = b"" if document is None else json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        admin = HTTPServer(("127.0.0.1", 0), Admin)
        threading.Thread(target=admin.serve_forever, daemon=True).start()
        for name, port in ("TCP", self._listener.getsockname()[1]), ("HTTP", admin.server_port):
            print(f"{name}: listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)

    def serve(self) -> None:
        """Until it is killed."""
        while True:
            chunks: list[bytes] = []
            done: list[Line] = []
            for descriptor, _ in self._events():
                line = self._lines.get(descriptor)
                if line is None:
                    self._accept()
                    continue
                self._read(line, chunks, done)
            if chunks:
                os.writev(self._file, chunks[:1024])
            for line in done:
                self.messages += line.messages
                line.socket.send(_OK)

    def _events(self) -> list[tuple[int, int]]:
        for _ in range(_SPINS):
            if events := self._poll.poll(0):
                return events
        return self._poll.poll()

    def _accept(self) -> None:
        line = Line(self._listener.accept()[0])
        line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.greet()
        self._lines[line.socket.fileno()] = line
        self._poll.register(line.socket, select.EPOLLIN)

    def _read(self, line: Line, chunks: list[bytes], done: list[Line]) -> None:
        if not line.payload_bytes:
            line.learn()
            done.append(line)
            return
        chunk = line.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            del self._lines[line.socket.fileno()]
            line.socket.close()
            return
        chunks.append(chunk)
        line.come += len(chunk)
        if line.come >= line.payload_bytes:
            line.come = 0
            done.append(line)


if __name__ == "__main__":
    [path] = [word.removeprefix("--data-path=") for word in sys.argv if word.startswith("--data-path=")]
    Least(path).serve()
