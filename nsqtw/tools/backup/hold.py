"""The hold of a running broker's files while they are copied, over its HTTP API."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from nsqtw.client.lookup import base_url
from nsqtw.errors import BackendError, OptionError

HOLD_SECONDS = 120.0
"""How long the broker holds its files without hearing of this process again."""
_ANSWER_SECONDS = 60.0


class Hold:
    """
    A hold on the files of the broker at `address`, host:port or a URL. `secret` is sent as a bearer token,
    `root_ca_file` verifies the broker's certificate. As a context it lasts as long as that.
    """

    def __init__(self, address: str, secret: str = "", root_ca_file: str = "") -> None:
        url = urlsplit(base_url(address))
        if url.scheme not in ("http", "https") or not url.hostname:
            raise OptionError(f"--nsqd-http-address={address} is neither host:port nor a URL")
        self._address = address
        self._host, self._port = url.hostname, url.port
        self._context: ssl.SSLContext | None = None
        if url.scheme == "https":
            try:
                self._context = ssl.create_default_context(cafile=root_ca_file or None)
            except OSError as failure:
                raise OptionError(f"--root-ca-file={root_ca_file} cannot be used: {failure}") from failure
        self._secret = secret
        self._number = 0
        self._extend_at = 0.0
        self.data_path = ""
        """The data path of the broker, as it names it,"""
        self.identity = ""
        """and its identity (`nsqtw.daemon.data_path`)."""

    def __enter__(self) -> Self:
        document = self._ask("hold", f"time={HOLD_SECONDS:.0f}s")
        try:
            self._number, self.data_path = int(document["hold"]), str(document["data_path"])
        except (KeyError, TypeError, ValueError) as failure:
            raise BackendError(f"the broker at {self._address} does not say what it holds") from failure
        self.identity = str(document.get("identity", ""))
        self._extend_at = time.monotonic() + HOLD_SECONDS / 4
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._ask("release", f"hold={self._number}")
        except BackendError:
            if kind is None:
                raise

    def extend(self) -> None:
        """Let the broker go on holding, if it is time to. BackendError when it does not hold any more."""
        if time.monotonic() >= self._extend_at:
            self._ask("hold", f"time={HOLD_SECONDS:.0f}s&hold={self._number}")
            self._extend_at = time.monotonic() + HOLD_SECONDS / 4

    def _ask(self, what: str, query: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_ANSWER_SECONDS, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("POST", f"/v2/backup/{what}?{query}", headers=headers)
            response = connection.getresponse()
            body = response.read()
            detail = response.headers.get("X-Nsqtw-Detail", "")
        except http.client.HTTPException as failure:
            text = "does not answer with HTTP; is this the HTTP port?"
            raise BackendError(f"the broker at {self._address} {text}") from failure
        except OSError as failure:
            reason = (failure.strerror or str(failure)).lower()
            raise BackendError(f"the broker at {self._address} does not answer: {reason}") from failure
        finally:
            connection.close()
        if response.status != 200:
            why = detail or body.decode("utf-8", "replace")[:200]
            raise BackendError(f"the broker at {self._address} refuses: {response.status} {why}")
        try:
            document = json.loads(body or b"{}")
        except (ValueError, RecursionError) as failure:
            raise BackendError(f"the broker at {self._address} gives an answer that is no JSON") from failure
        if not isinstance(document, dict):
            raise BackendError(f"the broker at {self._address} gives an answer that is no JSON object")
        return document
