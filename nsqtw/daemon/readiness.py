"""
Readiness of a daemon: named checks, each of which says why the daemon should get no new clients.

    readiness = Readiness()
    readiness.add("disk", lambda: "" if health.is_good else str(health))
    readiness.reasons()                         {} when it is ready, else {"disk": "NOK - no space left on device"}

A check runs only when it is asked for. /readyz needs no credential, so a reason names no topic, no address and no file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

DRAINING = "draining"
"""The check of a daemon that takes no new work."""
FAILED = "the check failed; the log says why"

_log = Logger()


class Readiness:
    """The checks of one daemon."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], str]] = {}

    def add(self, name: str, reason: Callable[[], str]) -> None:
        """Add a check. `reason` returns "" when it passes, else why not. A check of the same name is replaced."""
        self._checks[name] = reason

    @property
    def names(self) -> list[str]:
        """The names of all checks, in the order they were added."""
        return list(self._checks)

    def reasons(self) -> dict[str, str]:
        """Return the reason of each check that does not pass; nothing when the daemon is ready."""
        reasons = {name: _reason_of(name, check) for name, check in self._checks.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def document(self) -> dict[str, Any]:
        """Return what /readyz answers, with status 200 if `ready` is True, else 503."""
        reasons = self.reasons()
        return {"ready": not reasons, "checks": self.names, "reasons": reasons}


def _reason_of(name: str, check: Callable[[], str]) -> str:
    """Return the reason of a check. One that raises does not pass."""
    try:
        return check()
    except Exception:
        _log.failure("the readiness check {name} failed", name=name)
        return FAILED
