"""
POST and GET /v2/drain: a stop after all waiting messages are delivered, and its progress.

    POST /v2/drain?timeout=30s     refuse publishes, deliver for so long, then stop; without `timeout`, --drain-timeout
    GET /v2/drain                  how far that is: {"draining", "depth", "in_flight", "deferred", "staying", ...}


A drain is answered when it has begun. `runtime.drain` has the rest.
"""

from __future__ import annotations

from typing import Any

from nsqtw.api.context import ApiContext
from nsqtw.http.endpoints import JSON, Parameter, Section, endpoint
from nsqtw.http.query import duration, parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, Answer, document

_TIMEOUT = Parameter("timeout", {"type": "string", "description": "a duration such as 30s; 0 for any"})
_NUMBERS = ("depth", "in_flight", "deferred", "staying")
_STATE: dict[str, Any] = {
    JSON: {
        "type": "object",
        "properties": {
            "draining": {"type": "boolean"},
            **{name: {"type": "integer"} for name in _NUMBERS},
            "seconds": {"type": "number"},
            "seconds_left": {"type": "number", "nullable": True},
        },
        "required": ["draining", *_NUMBERS],
    }
}


class DrainApi(Section):
    """Ends a broker when it has delivered what it has."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._drain = context.drain

    @endpoint(
        "POST",
        "/v2/drain",
        "Refuse publishes, deliver what there is, then stop",
        optional=(_TIMEOUT,),
        success=_STATE,
        errors={400: ["INVALID_REQUEST", "INVALID_TIMEOUT"], 503: ["EXITING"]},
    )
    def begin_drain(self, request: HttpRequest) -> Answer:
        """POST /v2/drain"""
        timeout = duration(parameters(request.query), _TIMEOUT.name, self._broker.options.drain_timeout)
        if self._broker.stopping:
            return EXITING
        self._drain.begin(timeout)
        return document(self._drain.state())

    @endpoint("GET", "/v2/drain", "How far a drain is", success=_STATE)
    def show_drain(self, request: HttpRequest) -> Answer:
        """GET /v2/drain"""
        return document(self._drain.state())
