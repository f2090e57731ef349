"""The hold of a running broker's files while they are copied, over its HTTP API."""

from __future__ import annotations

import json
import ssl
import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from nsqtw.client.blocking_http import ask
from nsqtw.client.lookup import base_url
from nsqtw.client.tls import context_of
from nsqtw.errors import BackendError, LookupFailed, OptionError

HOLD_SECONDS = 120.0
"""How long the broker holds its files without hearing of this process again."""
_ANSWER_SECONDS = 60.0


class Hold:
    """
    A hold on the files of the broker at `address`, host:port or a URL. `secret` is sent as a bearer token,
    `root_ca_file` verifies the broker's certificate. As a context it lasts as long as that.
    """

    def __init__(self, address: str, secret: str = "", root_ca_file: str = "") -> None:
        self._url = base_url(address)
        url = urlsplit(self._url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise OptionError(f"--nsqd-http-address={address} is neither host:port nor a URL")
        self._address = address
        self._context: ssl.SSLContext | None = None
        if url.scheme == "https":
            try:
                self._context = context_of(root_ca_file)
            except OSError as failure:
                raise OptionError(f"--root-ca-file={root_ca_file} cannot be used: {failure}") from failure
        self._secret = secret
        self._number = 0
        self._extend_at = 0.0
        self.data_path = ""
        """The data path as the broker names it."""
        self.identity = ""
        """The identity of the data path (`nsqtw.daemon.data_path`)."""

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
        url = f"{self._url}/v2/backup/{what}?{query}"
        try:
            answer = ask(url, _ANSWER_SECONDS, method="POST", headers=headers, context=self._context)
        except LookupFailed as failure:
            raise BackendError(f"the broker at {self._address} does not answer: {failure}") from failure
        if answer.status != 200:
            why = answer.headers.get("x-nsqtw-detail", "") or answer.body.decode("utf-8", "replace")[:200]
            raise BackendError(f"the broker at {self._address} refuses: {answer.status} {why}")
        try:
            document = json.loads(answer.body or b"{}")
        except (ValueError, RecursionError) as failure:
            raise BackendError(f"the broker at {self._address} gives an answer that is no JSON") from failure
        if not isinstance(document, dict):
            raise BackendError(f"the broker at {self._address} gives an answer that is no JSON object")
        return document
