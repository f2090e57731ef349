"""An nsqadmin as a process, and requests to it."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.process import DaemonProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

EXECUTABLE = Path(sys.executable).with_name("nsqadmin")
NO_HEADERS: Mapping[str, str] = {}


@attrs.frozen
class Reply:
    """The answer to a request. The names of the headers are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The message of an answer of the API."""
        return self.document["message"]


class AdminProcess(DaemonProcess):
    """`nsqadmin`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        super().__init__(directory)
        self._command = [str(EXECUTABLE), f"--http-address={HOST}:{self.http_port}", *flags]

    def program(self) -> list[str]:
        return [str(EXECUTABLE)]

    def _listens(self, said: str) -> bool:
        assert self.runs, f"it ended: {said[-2000:]}"
        return "listening on" in said

    def ask(
        self, method: str, path: str, body: bytes | Mapping[str, Any] = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Reply:
        """One request on a connection of its own. A mapping is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, data or None, dict(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """One GET; `x_user="a"` is the header `X-User: a`."""
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def audit(self) -> list[str]:
        """The audit lines, without what stands before AUDIT."""
        return [line.partition("AUDIT: ")[2] for line in self.said().splitlines() if "AUDIT: " in line]

    def await_audit(self, text: str) -> str:
        """Wait for an audit line with a text; the line."""
        wait_until(lambda: any(text in line for line in self.audit()), f"an audit line with {text}")
        return next(line for line in self.audit() if text in line)
