"""
POST /v2/reload: have a daemon read its options, and the files they name, again.

    {"changed": [{"option": "log_level", "old": "info", "new": "debug"}],
     "restart": [{"option": "max_msg_size", "old": 1048576, "new": 2097152}],
     "files": ["grants"], "failed": {"certificates": "--tls-cert ..."}, "unchanged": ["max_topics", ...]}

With a mistake in an option nothing is changed: 400 INVALID_CONFIG, and the header X-Nsqtw-Detail says what is wrong.
"""

from __future__ import annotations

from typing import Any, Protocol

from nsqtw.daemon.reload import Reload
from nsqtw.errors import OptionError
from nsqtw.foreign_text import one_line
from nsqtw.http.endpoints import JSON, Section, endpoint
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document, failure

_CHANGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"option": {"type": "string"}, "old": {}, "new": {}},
        "required": ["option", "old", "new"],
    },
}
_NAMES = {"type": "array", "items": {"type": "string"}}
_REPORT: dict[str, Any] = {
    JSON: {
        "type": "object",
        "properties": {
            "changed": _CHANGES,
            "restart": _CHANGES,
            "files": _NAMES,
            "failed": {"type": "object", "additionalProperties": {"type": "string"}},
            "unchanged": _NAMES,
        },
        "required": ["changed", "restart", "files", "failed", "unchanged"],
    }
}


class HasReload(Protocol):
    """An object that knows the reload of its daemon."""

    @property
    def reloading(self) -> Reload:
        """The reload."""


class Reloading(Section):
    """Reloads the daemon of `context`."""

    def __init__(self, context: HasReload) -> None:
        self._reload = context.reloading

    @endpoint("POST", "/v2/reload", "Read options and files again", success=_REPORT, errors={400: ["INVALID_CONFIG"]})
    def reload(self, request: HttpRequest) -> Answer:
        """POST /v2/reload"""
        try:
            return document(self._reload.run().document())
        except OptionError as error:
            return failure(400, "INVALID_CONFIG", detail=one_line(str(error)))
