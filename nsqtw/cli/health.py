"""
`nsqtw health`: asks one daemon whether it works, for the health check of a container.

It uses the standard library: a check that runs every few seconds must not import Twisted.
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from nsqtw.cli.exit_codes import ExitCode
from nsqtw.cli.output import Document
from nsqtw.cli.session import Session
from nsqtw.client.lookup import host_and_port
from nsqtw.errors import ConnectFailed, OptionError

PATHS = {"ready": "/readyz", "live": "/livez", "ping": "/ping"}
"""The values of --check."""


def health(session: Session, address: str, check: str, timeout: float, tls_ca_file: str | None) -> Document:
    """`nsqtw health`. The exit code is FAILED for a daemon that says no."""
    url = urlsplit(address if "://" in address else f"http://{address}")
    host, port = host_and_port(url.netloc)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    if url.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=tls_ca_file)
        except OSError as error:
            raise OptionError(f"--tls-ca-file {tls_ca_file}: {error}") from error
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    try:
        path = PATHS[check]
        status, body = _get(connection, path)
        if status == 404:  # another nsqd
            path = PATHS["ping"]
            status, body = _get(connection, path)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectFailed(address, f"{address}: {reason.lower()}") from error
    finally:
        connection.close()
    is_healthy = status == 200
    if not is_healthy:
        session.exit_code = ExitCode.FAILED
    shown: str = " ".join(body.split()) or f"status {status}"
    details: object = shown
    with suppress(ValueError):
        details = json.loads(body)
    if isinstance(details, dict) and isinstance(details.get("reasons"), dict):
        shown = "; ".join(f"{name}: {reason}" for name, reason in details["reasons"].items()) or "all checks passed"
    return Document(
        {"address": address, "healthy": is_healthy, "path": path, "status": status, "details": details},
        [f"{address}{path}: {'healthy' if is_healthy else 'not healthy'}: {shown}"],
    )


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path, headers={"Connection": "keep-alive"})
    answer = connection.getresponse()
    return answer.status, answer.read(64 * 1024).decode("utf-8", "replace")
