"""
`nsqtw health`: asks one daemon whether it works, for the health check of a container.

It uses the standard library: a check that runs every few seconds must not import Twisted.
"""

from __future__ import annotations

import json
from contextlib import suppress

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.exit_codes import ExitCode
from nsqtw.cli.output import Document
from nsqtw.cli.plain_http import get
from nsqtw.cli.session import Session

PATHS = {"ready": "/readyz", "live": "/livez", "ping": "/ping"}
"""The values of --check."""
_SHOWN_BYTES = 64 * 1024


def health(session: Session, address: str, check: str, timeout: float, tls_ca_file: str | None) -> Document:
    """`nsqtw health`. The exit code is FAILED for a daemon that says no."""
    access = ClusterAccess(tls_ca_file=tls_ca_file or "")
    path = PATHS[check]
    answer = get(access, address, path, timeout)
    if answer.status == 404:  # another nsqd
        path = PATHS["ping"]
        answer = get(access, address, path, timeout)
    status, body = answer.status, answer.body[:_SHOWN_BYTES].decode("utf-8", "replace")
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
