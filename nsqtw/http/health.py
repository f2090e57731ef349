"""
GET /livez and /readyz: the state of a daemon, for service managers and load balancers.

    /livez     200 OK                    the event loop turns; restart the daemon when no answer comes
    /readyz    200 or 503, as JSON       whether the daemon should get new clients:

    {"ready":false,"checks":["recovered","disk","lookupd","draining"],"reasons":{"disk":"NOK - no space left"}}

A process whose event loop is stuck cannot answer anything, /livez included: the sign of that is a timeout. Both need no
credential, as /ping, and say nothing about topics and addresses.
"""

from __future__ import annotations

from typing import Any, Protocol

from nsqtw.daemon.readiness import Readiness
from nsqtw.http.bearer_auth import FREE
from nsqtw.http.endpoints import AN_OK, JSON, Section, endpoint
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document, plain

_ALIVE = plain(200, "OK")
_READINESS: dict[str, Any] = {
    JSON: {
        "type": "object",
        "properties": {
            "ready": {"type": "boolean"},
            "checks": {"type": "array", "items": {"type": "string"}},
            "reasons": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["ready", "checks", "reasons"],
    }
}


class HasReadiness(Protocol):
    """An object that knows the checks of its daemon."""

    @property
    def readiness(self) -> Readiness:
        """The checks."""


class Health(Section):
    """Answers from the checks of `context`."""

    def __init__(self, context: HasReadiness) -> None:
        self._readiness = context.readiness

    @endpoint(
        "GET",
        "/livez",
        "Whether the process answers: restart it when no answer comes",
        success=AN_OK,
        needs=FREE,
        broken=None,
        logged=False,
    )
    def live(self, request: HttpRequest) -> Answer:
        """GET /livez"""
        return _ALIVE

    @endpoint(
        "GET",
        "/readyz",
        "Whether new clients should come: 200, or 503 with a reason for each check that fails",
        success=_READINESS,
        errors={503: []},
        needs=FREE,
        broken=None,
        logged=False,
    )
    def ready(self, request: HttpRequest) -> Answer:
        """GET /readyz"""
        shown = self._readiness.document()
        return document(shown, status=200 if shown["ready"] else 503)
