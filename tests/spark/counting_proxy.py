"""A proxy before an nsqd's HTTP that counts requests for logs, and the bytes of their answers."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.process import NsqdProcess
from tests.spark.http_thread import HttpThread
from tests.wire import HOST


class CountingProxy(HttpThread):
    """Forwards GET to `broker`."""

    def __init__(self, broker: NsqdProcess) -> None:
        self.target = f"http://{HOST}:{broker.http_port}"
        self.reads = self.read_bytes = 0
        self.lock = threading.Lock()
        server = _Server((HOST, 0), _Handler)
        server.proxy = self
        super().__init__(server)

    def take(self) -> tuple[int, int]:
        """Return how many requests read a log since the last call, and the bytes of the answers."""
        with self.lock:
            found = self.reads, self.read_bytes
            self.reads = self.read_bytes = 0
        return found


class _Server(ThreadingHTTPServer):
    proxy: CountingProxy
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        proxy = self.server.proxy
        try:
            with urlopen(proxy.target + self.path) as answer:
                status, headers, body = answer.status, answer.headers, answer.read()
        except HTTPError as error:
            status, headers, body = error.code, error.headers, error.read()
        if self.path.startswith("/v2/topic/log?"):
            with proxy.lock:
                proxy.reads += 1
                proxy.read_bytes += len(body)
        self.send_response(status)
        for name, value in headers.items():
            if name == "Content-Type" or name.startswith("X-Nsqtw"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
