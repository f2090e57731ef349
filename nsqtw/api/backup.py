"""
POST /v2/backup/hold and /v2/backup/release: holds on the files of a running broker, for `nsqtw backup`.

    /v2/backup/hold?time=60s            {"hold": 1, "data_path", "identity", "backend"}, when everything up to now is
                                        saved; nothing is deleted until its end
    /v2/backup/hold?time=60s&hold=1     the same, and the hold goes on for so long from now
    /v2/backup/release?hold=1           it ends

`core.file_hold` says what a hold is for.
"""

from __future__ import annotations

import os

from nsqtw.api.context import ApiContext
from nsqtw.daemon.data_path import data_path_identity
from nsqtw.errors import BackendError
from nsqtw.http.endpoints import JSON, NOT_STORED, Parameter, Section, endpoint
from nsqtw.http.query import duration, parameters, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import DONE, EXITING, INTERNAL_ERROR, Answer, Refused, document, failure

DEFAULT_SECONDS = 60.0
MAX_SECONDS = 600.0

_HOLD_NOT_FOUND = failure(404, "HOLD_NOT_FOUND")
_TIME = Parameter("time", {"type": "string", "default": "60s", "description": "a duration, 10m at most"})
_HOLD = Parameter("hold", {"type": "integer", "minimum": 1, "description": "the number of a hold"})
_HELD = {
    JSON: {
        "type": "object",
        "properties": {
            "hold": {"type": "integer"},
            "data_path": {"type": "string"},
            "identity": {"type": "string", "description": "of the data path and its machine"},
            "backend": {"type": "string"},
        },
        "required": ["hold", "data_path", "identity", "backend"],
    }
}


class Backup(Section):
    """Holds the files of a broker while they are copied."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump
        self._data_path = os.path.abspath(context.view.data_path)

    @endpoint(
        "POST",
        "/v2/backup/hold",
        "Delete nothing for a while, so that the files can be copied",
        optional=(_TIME, _HOLD),
        success=_HELD,
        errors={400: ["INVALID_REQUEST", "INVALID_TIME", "INVALID_HOLD"], 404: ["HOLD_NOT_FOUND"], **NOT_STORED},
    )
    def hold(self, request: HttpRequest) -> Answer | None:
        """POST /v2/backup/hold"""
        params = parameters(request.query)
        seconds = min(duration(params, "time", DEFAULT_SECONDS), MAX_SECONDS)
        number = whole_number(params, "hold", 0, lowest=1)
        if self._broker.stopping or self._broker.is_suspended:
            return EXITING
        try:
            identity = data_path_identity(self._data_path)
        except OSError:
            return INTERNAL_ERROR
        holds, now = self._broker.checkpointer.file_hold, self._pump.now()
        if number and not holds.extend(number, now, seconds):
            return _HOLD_NOT_FOUND
        if not number:
            try:
                self._broker.store_write_behind()
            except BackendError:
                return INTERNAL_ERROR
            number = holds.begin(now, seconds)
        backend = self._broker.options.backend
        answer = document({"hold": number, "data_path": self._data_path, "identity": identity, "backend": backend})
        self._broker.checkpointer.ask(lambda error: request.answer_later(answer if error is None else INTERNAL_ERROR))
        self._pump.wake()
        return None

    @endpoint(
        "POST",
        "/v2/backup/release",
        "End a hold of the files",
        required=(_HOLD,),
        errors={400: ["INVALID_REQUEST", "INVALID_HOLD"], 404: ["HOLD_NOT_FOUND"]},
    )
    def release(self, request: HttpRequest) -> Answer:
        """POST /v2/backup/release"""
        number = whole_number(parameters(request.query), "hold", 0, lowest=1)
        if not self._broker.checkpointer.file_hold.end(number):
            raise Refused(_HOLD_NOT_FOUND)
        self._pump.wake()
        return DONE
