"""HTTP servers that answer as nodes with a fault, or as other programs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit


@contextmanager
def serving(
    path: str,
    body: bytes,
    *,
    date: str = "",
    more: dict[str, tuple[int, bytes]] | None = None,
    secrets: list[str] | None = None,
) -> Iterator[str]:
    """
    A server that answers a path with a body, and `more` paths with status and body. Its address. `secrets` gets the
    Authorization field of each request, "" for none.
    """
    answers = {path: (200, body), **(more or {})}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if secrets is not None:
                secrets.append(self.headers.get("Authorization", ""))
            status, answer = answers.get(urlsplit(self.path).path, (404, b'{"message": "NOT_FOUND"}'))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
