"""HTTP requests that block, one a connection: for threads, and for programs without an event loop."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from nsqtw.client.http import MAX_ANSWER_BYTES, Answer, AnswerBytes, parse_answer, request_bytes
from nsqtw.errors import LookupFailed

_READ_BYTES = 256 * 1024


def ask(
    url: str,
    seconds: float,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    most_bytes: int = MAX_ANSWER_BYTES,
) -> Answer:
    """
    Make a request. The whole answer must arrive within `seconds`, and have at most so many bytes. LookupFailed, which
    says why, without the URL.
    """
    parts = urlsplit(url)
    until = time.monotonic() + seconds
    received = AnswerBytes(method, most_bytes)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), seconds) as plain:
            connection = plain if parts.scheme == "http" else _with_tls(plain, parts.hostname or "", context)
            with connection:
                connection.sendall(request_bytes(parts, method, headers or {}, b""))
                while True:
                    connection.settimeout(max(0.001, until - time.monotonic()))
                    data = connection.recv(_READ_BYTES)
                    if not data or received.add(data):
                        break
    except OSError as error:
        raise LookupFailed((error.strerror or str(error) or type(error).__name__).lower()) from error
    return parse_answer(bytes(received.data), method)


def _with_tls(connection: socket.socket, name: str, context: ssl.SSLContext | None) -> ssl.SSLSocket:
    return (context or ssl.create_default_context()).wrap_socket(connection, server_hostname=name)
