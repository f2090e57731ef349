"""A scripted nsqd on a real socket: each connection is served by the next of its scripts, in a thread."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import BinaryIO, Self

from nsqtw.options.addresses import join_host_port

IDENTIFIED = b'{"max_rdy_count":2500,"msg_timeout":60000,"version":"1.3.0"}'
_WITH_BODY = (b"IDENTIFY", b"AUTH", b"PUB", b"MPUB", b"DPUB")
_SECONDS = 20.0


def frame(data: bytes, kind: int = 0) -> bytes:
    """Return a frame: a response, or with kind 1 an error."""
    return struct.pack(">II", len(data) + 4, kind) + data


def message(number: int, body: bytes = b"body", attempts: int = 1) -> bytes:
    """Return the frame of a message with the id `number`."""
    return frame(struct.pack(">qH16s", 0, attempts, b"%016d" % number) + body, 2)


OK = frame(b"OK")
HEARTBEAT = frame(b"_heartbeat_")


class Peer:
    """One connection of a client, as a script sees it."""

    def __init__(self, connection: socket.socket, file: BinaryIO, received: list[bytes]) -> None:
        self._connection = connection
        self._file = file
        self._received = received

    def command(self) -> bytes:
        """Return the next command, without its body. Empty at the end of the connection."""
        try:
            line = self._file.readline().strip().removeprefix(b"V2")
            if line.partition(b" ")[0] in _WITH_BODY:
                (size,) = struct.unpack(">I", self._file.read(4))
                self._file.read(size)
        except (OSError, struct.error):
            return b""
        if line:
            self._received.append(line)
        return line

    def expect(self, name: bytes) -> bytes:
        """Return the next command that begins so, passing over others. Empty at the end of the connection."""
        while (line := self.command()) and not line.startswith(name):
            pass
        return line

    def identify(self, answer: bytes = IDENTIFIED) -> None:
        """Answer IDENTIFY."""
        self.expect(b"IDENTIFY")
        self.send(frame(answer))

    def subscribe(self) -> None:
        """Answer IDENTIFY and SUB, and wait for RDY."""
        self.identify()
        self.expect(b"SUB")
        self.send(OK)
        self.expect(b"RDY")

    def send(self, data: bytes) -> None:
        """Write."""
        self._connection.sendall(data)

    def wait_closed(self) -> None:
        """Wait until the client closes."""
        while self.command():
            pass


Script = Callable[[Peer], None]


class FakeNsqd:
    """Listens on `address`. After the end of its script a connection is closed; the last script serves the others."""

    def __init__(self, *scripts: Script, host: str = "127.0.0.1") -> None:
        self._scripts = scripts
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.address = join_host_port(host, self._listener.getsockname()[1])
        self.received: list[bytes] = []
        """All commands, without bodies."""
        self.connection_count = 0

    def __enter__(self) -> Self:
        Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # a close alone does not end an accept in another thread
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connection_count, len(self._scripts) - 1)]
            self.connection_count += 1
            Thread(target=self._serve, args=(connection, script), daemon=True).start()

    def _serve(self, connection: socket.socket, script: Script) -> None:
        connection.settimeout(_SECONDS)
        with connection, connection.makefile("rb") as file:
            with suppress(OSError):  # the client is gone
                script(Peer(connection, file, self.received))
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
