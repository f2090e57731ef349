"""A fake that speaks HTTP, served in a thread on a free port."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from tests.wire import HOST


class HttpThread:
    """A context manager: serves while it is entered."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str = "") -> None:
        self._http = server
        self._scheme = scheme
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)

    @property
    def address(self) -> str:
        return f"{self._scheme}localhost:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Answer(NamedTuple):
    """An answer to a GET."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class GetThread(HttpThread):
    """A fake of which each GET is one call of `answer`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        server = _Server((HOST, 0), _Handler)
        server.fake = self
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        super().__init__(server, "https://" if tls else "")

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        """Return the answer to a request for `path` with these headers. Runs in a thread of the connection."""
        raise NotImplementedError


class _Server(ThreadingHTTPServer):
    fake: GetThread
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        answer = self.server.fake.answer(self.path, dict(self.headers.items()))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        pass
