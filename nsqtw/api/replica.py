"""
GET /v2/replica and POST /v2/replica/release: the role of a broker with a replica store, and a planned takeover.

    GET /v2/replica             {"role": "owner", "data_set": "orders", "epoch": 3, "standbys": [...], ...}
    POST /v2/replica/release    the owner stops, as with SIGTERM, and a standby takes over at once

A release is answered when it has begun. It is refused while no standby has told the store that it runs; `force` allows
it all the same.
"""

from __future__ import annotations

from typing import Any

from nsqtw.api.context import ApiContext
from nsqtw.http.endpoints import JSON, Parameter, Section, endpoint
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, Answer, document, failure
from nsqtw.replication.status import OWNER

_FORCE = Parameter("force", {"type": "string", "enum": ["true"], "description": "release without a standby, too"})
_TEXTS = ("role", "data_set", "identity", "owner", "error")
_COUNTS = ("epoch", "lsn", "behind_transactions", "behind_messages", "behind_bytes")
_SECONDS = ("lease_left", "behind_seconds")
_STATUS: dict[str, Any] = {
    JSON: {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in _TEXTS},
            **{name: {"type": "integer"} for name in _COUNTS},
            **{name: {"type": "number"} for name in _SECONDS},
            "standbys": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "identity": {"type": "string"},
                        "address": {"type": "string"},
                        "behind_transactions": {"type": "integer"},
                        "seconds_ago": {"type": "number"},
                    },
                },
            },
        },
        "required": [*_TEXTS, *_COUNTS, *_SECONDS, "standbys"],
    }
}
_NO_REPLICA = failure(404, "NO_REPLICA_STORE")
_NOT_OWNER = failure(409, "NOT_OWNER")
_NO_STANDBY = failure(409, "NO_STANDBY")


class ReplicaApi(Section):
    """Shows the replica store of a broker, and gives up its data set."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._replica = context.view.replica

    @endpoint(
        "GET",
        "/v2/replica",
        "The role of this broker: owner of its data set, or standby",
        success=_STATUS,
        errors={404: ["NO_REPLICA_STORE"]},
    )
    def show_replica(self, request: HttpRequest) -> Answer:
        """GET /v2/replica"""
        return _NO_REPLICA if self._replica is None else document(self._replica.status().document())

    @endpoint(
        "POST",
        "/v2/replica/release",
        "Stop in order, and let a standby take over",
        optional=(_FORCE,),
        success=_STATUS,
        errors={
            400: ["INVALID_REQUEST"],
            404: ["NO_REPLICA_STORE"],
            409: ["NOT_OWNER", "NO_STANDBY"],
            503: ["EXITING"],
        },
    )
    def release(self, request: HttpRequest) -> Answer:
        """POST /v2/replica/release"""
        is_forced = parameters(request.query).get("force") == "true"
        if self._replica is None:
            return _NO_REPLICA
        if self._broker.stopping:
            return EXITING
        status = self._replica.status()
        if status.role != OWNER:
            return _NOT_OWNER
        if not (status.running_standbys or is_forced):
            return _NO_STANDBY
        self._replica.release()
        return document(status.document())
