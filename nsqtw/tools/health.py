"""`nsqtw health [ADDRESS]`: the readiness of a daemon as an exit code, for health checks of containers and scripts."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from typing import Any
from urllib.parse import urlsplit

DEFAULT_ADDRESS = "127.0.0.1:4151"
VARIABLE = "NSQTW_HEALTH_ADDRESS"
"""The environment variable with the address when none is given."""
READY = 0
NOT_READY = 1
WRONG_WORDS = 2


def run(address: str, timeout: float, root_ca_file: str) -> int:
    """Ask `/readyz` of the daemon at `address`, host:port or a URL. One line says why it is not ready."""
    address = address or os.environ.get(VARIABLE, "") or DEFAULT_ADDRESS
    url = urlsplit(address if "://" in address else f"http://{address}")
    if url.scheme not in ("http", "https") or not url.hostname:
        sys.stderr.write(f"nsqtw health: {address} is neither host:port nor a URL\n")
        return WRONG_WORDS
    try:
        status, body = _ask(url.scheme, url.hostname, url.port, timeout, root_ca_file)
    except (OSError, ValueError, http.client.HTTPException) as failure:
        sys.stderr.write(f"nsqtw health: {address} does not answer: {failure}\n")
        return NOT_READY
    if status == 200:
        print("ready")
        return READY
    print(f"not ready: {_reasons(status, body)}")
    return NOT_READY


def _ask(scheme: str, host: str, port: int | None, timeout: float, root_ca_file: str) -> tuple[int, bytes]:
    """Return the status and the body of /readyz. OSError, ValueError, HTTPException."""
    connection: http.client.HTTPConnection
    if scheme == "https":
        context = ssl.create_default_context(cafile=root_ca_file or None)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _reasons(status: int, body: bytes) -> str:
    """The reasons of an answer, in one line."""
    try:
        reasons: dict[str, Any] = json.loads(body)["reasons"]
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the answer is {status}, and not that of a daemon of nsqtw"
