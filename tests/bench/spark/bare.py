"""A client of nsqd that does nothing but send: the least that publishing costs."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from pyspark_nsq.sink.packing import Request

from ..errors import WrongCount

_ANSWER_BYTES = 4096


class BareClient:
    """One connection to the HTTP port of this machine, with one request under way; a context manager."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_waiting = False

    def publish(self, request: Request) -> None:
        """Send `request`, once the one before is answered. Raises WrongCount for another answer than OK."""
        self._wait()
        head = b"POST %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n"
        parts = (head % (request.path.encode("ascii"), request.body_bytes), *request.body)
        sent = self._socket.sendmsg(parts)
        if sent < sum(map(len, parts)):
            self._socket.sendall(b"".join(parts)[sent:])
        self._is_waiting = True

    def _wait(self) -> None:
        if self._is_waiting:
            answer = self._socket.recv(_ANSWER_BYTES)
            if not answer.endswith(b"\r\n\r\nOK"):
                raise WrongCount(f"a request was answered with {answer!r}")
            self._is_waiting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if value is None:
                self._wait()
        finally:
            self._socket.close()
