"""An nsqd as nsqlookupd sees it: a socket that speaks V1."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from contextlib import ExitStack
from typing import Any

from tests.wire import ANSWER_SECONDS, HOST

MAGIC = b"  V1"


def identity(name: str = "a", **more: Any) -> dict[str, Any]:
    """What an nsqd on a machine of this name says of itself."""
    fields = {"broadcast_address": name, "hostname": f"{name}.host", "tcp_port": 4150, "http_port": 4151}
    return {**fields, "version": "1.3.0", **more}


def identify(**fields: Any) -> bytes:
    """The command."""
    body = json.dumps(fields or identity()).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def responses(data: bytes) -> list[bytes]:
    """What was answered, cut."""
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(data[4 : 4 + size])
        assert len(found[-1]) == size, "the last response has not come whole"
        data = data[4 + size :]
    return found


class FakeNsqd:
    """A connection to the nsqlookupd at `port`, with TLS if there is `tls`. The magic is sent."""

    def __init__(self, port: int, magic: bytes = MAGIC, tls: ssl.SSLContext | None = None) -> None:
        with ExitStack() as undo:
            self._socket = undo.enter_context(socket.create_connection((HOST, port), timeout=ANSWER_SECONDS))
            if tls is not None:
                self._socket = undo.enter_context(tls.wrap_socket(self._socket, server_hostname="localhost"))
            self._input = undo.enter_context(self._socket.makefile("rb"))
            self.send(magic)
            undo.pop_all()

    def __enter__(self) -> FakeNsqd:
        return self

    def __exit__(self, *about: object) -> None:
        self._input.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> bytes:
        """The next response; empty at the end of the connection."""
        try:
            head = self._input.read(4)
        except ConnectionError:
            return b""
        return self._input.read(struct.unpack(">i", head)[0]) if head else b""

    def ask(self, line: str) -> bytes:
        """Send a line; its response."""
        self.send(line.encode() + b"\n")
        return self.read()

    def identify(self, name: str = "a", **more: Any) -> bytes:
        """Say who it is."""
        self.send(identify(**identity(name, **more)))
        return self.read()

    def register(self, *names: str, name: str = "a") -> FakeNsqd:
        """Identify and register these: `topic` or `topic channel`. Returns this."""
        assert self.identify(name).startswith(b"{")
        for one in names:
            assert self.ask(f"REGISTER {one}") == b"OK"
        return self
