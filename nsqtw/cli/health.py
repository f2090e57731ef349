"""
`nsqtw health`: asks one daemon whether it works, for the health check of a container.

It uses the standard library: a check that runs every few seconds must not import Twisted.
"""

from __future__ import annotations

import json
from contextlib import suppress

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.output import Document
from nsqtw.cli.session import Session
from nsqtw.cli.stdlib_http import get
from nsqtw.cli.verb import CHECKS

_STATES = {"ready": "ready", "live": "alive", "ping": "healthy"}
_SHOWN_BYTES = 64 * 1024


def health(session: Session, address: str, check: str, timeout: float, root_ca_file: str) -> Document:
    """`nsqtw health`. The exit code is FAILED for a daemon that says no."""
    access = ClusterAccess(tls_ca_file=root_ca_file)
    path = CHECKS[check]
    answer = get(access, address, path, timeout)
    if answer.status == 404:  # another nsqd
        path = CHECKS["ping"]
        answer = get(access, address, path, timeout)
    status, body = answer.status, answer.body[:_SHOWN_BYTES].decode("utf-8", "replace")
    is_healthy = status == 200
    if not is_healthy:
        session.exit_code = ExitCode.FAILED
    details: object = " ".join(body.split())
    with suppress(ValueError, RecursionError):
        details = json.loads(body)
    return Document(
        {"address": address, "healthy": is_healthy, "path": path, "status": status, "details": details},
        [_STATES[check] if is_healthy else f"not {_STATES[check]}: {reasons_text(details) or f'status {status}'}"],
    )


def reasons_text(details: object) -> str:
    """Return the reasons of /readyz, or the answer of another daemon."""
    reasons = details.get("reasons") if isinstance(details, dict) else None
    if isinstance(reasons, dict):
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return str(details)
