"""A proxy before an nsqd's HTTP that counts requests for logs, and the bytes of their answers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.process import NsqdProcess
from tests.spark.http_thread import Answer, GetThread
from tests.wire import HOST


class CountingProxy(GetThread):
    """Forwards GET to `broker`."""

    def __init__(self, broker: NsqdProcess) -> None:
        self.target = f"http://{HOST}:{broker.http_port}"
        self.reads = self.read_bytes = 0
        self.lock = threading.Lock()
        super().__init__()

    def take(self) -> tuple[int, int]:
        """Return how many requests read a log since the last call, and the bytes of the answers."""
        with self.lock:
            found = self.reads, self.read_bytes
            self.reads = self.read_bytes = 0
        return found

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        try:
            with urlopen(self.target + path) as answer:
                status, found, body = answer.status, answer.headers, answer.read()
        except HTTPError as error:
            status, found, body = error.code, error.headers, error.read()
        if path.startswith("/v2/topic/log?"):
            with self.lock:
                self.reads += 1
                self.read_bytes += len(body)
        kept = {name: value for name, value in found.items() if name == "Content-Type" or name.startswith("X-Nsqtw")}
        return Answer(status, body, kept)
