"""Servers that answer as a test says, and a cluster of one of them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials
from nsqtw.cluster.http import Timeouts
from tests.cluster.reactor import run
from tests.wire import ANSWER_SECONDS, HOST

Answers = Callable[[str], bytes | None]
"""The answer to the head of a request; None for none."""


@contextmanager
def server(answers: Answers) -> Iterator[tuple[str, list[str]]]:
    """Run a server that takes one request a connection; its address, and the heads of the requests."""
    heads: list[str] = []
    kept: list[socket.socket] = []
    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.settimeout(ANSWER_SECONDS)
            head = b""
            while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
                head += piece
            heads.append(head.decode())
            answer = answers(head.decode())
            if answer is None:
                kept.append(connection)
                continue
            with suppress(OSError):
                connection.sendall(answer)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"{HOST}:{listening.getsockname()[1]}", heads
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for connection in kept:
            connection.close()


def answer(document: object, status: str = "200 OK", *fields: str) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def ask(address: str, method: str, *arguments: Any, credentials: ClusterCredentials | None = None, **more: Any) -> Any:
    async def test(reactor: Any) -> Any:
        timeouts = more.pop("timeouts", Timeouts(ANSWER_SECONDS, ANSWER_SECONDS))
        cluster = Cluster(reactor, nsqds=[address], credentials=credentials, timeouts=timeouts)
        try:
            return await getattr(cluster, method)(*arguments, **more)
        finally:
            await cluster.close()

    return run(test)
