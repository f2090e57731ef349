"""
POST /v2/topic/cancel: cancelling a deferred message before its time.

    /v2/topic/cancel?topic=&id=&channel=                {"id", "released", "channels"}; `channel`: in this one only
    /v2/topic/cancel?topic=&publisher_id=&channel=      the same, of the message with the publisher's id

It is done between two saves, as a seek is (`api.replay`): the first one, so that no row of the message is on its way to
positions.db; the second one makes it durable, and then it is answered. Cancellations that arrive meanwhile share both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.core.segment import SEQUENCE_BITS, id_of, sequence_of
from nsqtw.core.topic import Cancelled, Topic
from nsqtw.errors import BackendError
from nsqtw.http.endpoints import (
    CHANNEL,
    CHANNEL_WORDS,
    JSON,
    MESSAGE_ID,
    NOT_STORED,
    TOPIC,
    Parameter,
    Section,
    endpoint,
)
from nsqtw.http.names import Parameters, channel_named, message_id, topic_name, topic_named
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, Refused, document, failure
from nsqtw.rights import PUBLISH

_INVALID_ID = failure(400, "INVALID_ID")
_TWO_IDS = failure(400, "INVALID_ID", detail="Only one of 'id' and 'publisher_id' can be given.")
_NO_WINDOW = failure(400, "DEDUPE_WINDOW_REQUIRED")
_NOT_DEFERRED = failure(404, "MESSAGE_NOT_DEFERRED")
_NOT_RELEASED = failure(409, "MESSAGE_NOT_RELEASED")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")

_PUBLISHER_ID = Parameter(
    "publisher_id", {"type": "string", "description": "instead of `id`: the id that its publisher gave the message"}
)
_CANCELLED = {
    JSON: {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "released": {"type": "boolean"},
            "channels": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "released", "channels"],
    }
}

_FindSequences = Callable[[], "list[int | None]"]
"""Returns the sequences that an id may mean, None for one that is not known."""

_log = Logger()


class Cancelling(Section):
    """Cancels deferred messages of a broker. Permission to publish is permission to cancel."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump

    @endpoint(
        "POST",
        "/v2/topic/cancel",
        "Cancel a deferred message",
        required=(TOPIC,),
        optional=(MESSAGE_ID, _PUBLISHER_ID, CHANNEL),
        success=_CANCELLED,
        errors={
            400: [*CHANNEL_WORDS, "MISSING_ARG_ID", "INVALID_ID", "DEDUPE_WINDOW_REQUIRED"],
            404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND", "MESSAGE_NOT_DEFERRED"],
            409: ["MESSAGE_NOT_RELEASED"],
            **NOT_STORED,
        },
        needs=PUBLISH,
    )
    def cancel(self, request: HttpRequest) -> Answer | None:
        """POST /v2/topic/cancel"""
        params = parameters(request.query)
        topic = topic_named(self._broker, topic_name(params))
        find = self._sequences(topic, params)
        channel = channel_named(self._broker, params).name if "channel" in params else ""
        if self._broker.stopping:
            return EXITING
        self._broker.checkpointer.ask(partial(self._cancel_now, request, topic, find, channel))
        self._pump.wake()
        return None

    def _sequences(self, topic: Topic, params: Parameters) -> _FindSequences:
        """Return what finds the sequences of the messages with the id. Refused."""
        if "publisher_id" in params:
            deduplication, publisher_id = topic.deduplication, params["publisher_id"]
            if "id" in params:
                raise Refused(_TWO_IDS)
            if not publisher_id or not _is_text(publisher_id):
                raise Refused(_INVALID_ID)
            if deduplication is None:
                raise Refused(_NO_WINDOW)
            audiences = [params["channel"], ""] if "channel" in params else [""]
            return lambda: [deduplication.sequence_of(publisher_id, self._pump.now(), one) for one in audiences]
        found = message_id(params)
        is_ours = int(found, 16) >> SEQUENCE_BITS == self._broker.node_id
        return lambda: [sequence_of(found) if is_ours else None]

    def _cancel_now(
        self, request: HttpRequest, topic: Topic, find: _FindSequences, channel: str, error: Exception | None
    ) -> None:
        """Cancel a message: the deferred messages are saved, or saving them failed with `error`."""
        if error is not None:
            request.answer_later(_failed(error))
            return
        try:
            sequences = [sequence for sequence in find() if sequence is not None]
            done = _cancel_one(topic, sequences, channel, self._pump.now())
            is_kept_back = done is None and any(map(topic.keeps_deferred, sequences))
        except BackendError as failed:
            request.answer_later(_failed(failed))
            return
        if topic.exiting:
            request.answer_later(_TOPIC_NOT_FOUND)
            return
        if done is None:
            request.answer_later(_NOT_RELEASED if is_kept_back else _NOT_DEFERRED)
            return
        sequence, cancelled = done
        answer = document(
            {
                "id": id_of(self._broker.node_id, sequence).decode(),
                "released": cancelled.is_released,
                "channels": cancelled.channels,
            }
        )
        self._broker.checkpointer.ask(lambda failed: request.answer_later(_failed(failed) if failed else answer))
        self._pump.wake()


def _cancel_one(topic: Topic, sequences: list[int], channel: str, now: float) -> tuple[int, Cancelled] | None:
    """Cancel the first one of these messages that is deferred. BackendError."""
    for sequence in sequences:
        cancelled = topic.cancel(sequence, now, channel)
        if cancelled is not None:
            return sequence, cancelled
    return None


def _is_text(text: str) -> bool:
    """Return whether a parameter was UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _failed(error: Exception) -> Answer:
    _log.error("cancelling a message failed - {error}", error=error)
    return INTERNAL_ERROR
