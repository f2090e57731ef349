"""A fake that speaks HTTP, served in a thread on a free port."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import Self


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
