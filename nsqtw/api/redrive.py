"""
/v2/channel/redrive: putting the dead letters of a channel back. /v2/channel/finish: finishing one message of a channel.

    POST /v2/channel/redrive?topic=&channel=&rate=&max=&dry_run=    begin
    POST /v2/channel/redrive?topic=&channel=&id=                    put this letter back, and answer when that is done
    POST /v2/channel/redrive?topic=&channel=&stop=true              end it before it is done
    GET  /v2/channel/redrive?topic=&channel=                        how far the last one is
    POST /v2/channel/finish?topic=&channel=&id=                     {"id"}, when it is saved

The others answer {"state", "total", "redriven", "others", "rate", "started", "error"}. `others` are messages that stay:
letters of other channels, and messages that are no dead letters. `core.policy.redrive` has the rest.

Each needs `admin` for the channel and for the channel of the dead letters, which others may share: a redrive is the
only consumer there, and withholds their letters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.logger import Logger

from nsqtw.api.context import ApiContext
from nsqtw.core.channel import Channel
from nsqtw.core.policy.redrive import DONE, FAILED, RUNNING, STATES, Finishing, Redrive, Redrives, preview
from nsqtw.core.policy.redrive_preview import RedrivePreview
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, ChannelFull, Exiting
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
from nsqtw.http.names import Parameters, channel_named, message_id
from nsqtw.http.query import parameters, truth, whole_number
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, Refused, document, failure
from nsqtw.options.refusals import dead_letter_topic
from nsqtw.rights import ADMIN

_PATH = "/v2/channel/redrive"
_EPHEMERAL_CHANNEL = failure(
    400,
    "EPHEMERAL_CHANNEL",
    detail="An ephemeral channel has no channel of the same name for its dead letters. Give them to a consumer of"
    " another channel of the dead-letter topic, or use a durable channel.",
)
_DEAD_LETTERS_NOT_FOUND = failure(404, "DEAD_LETTERS_NOT_FOUND")
_REDRIVE_NOT_FOUND = failure(404, "REDRIVE_NOT_FOUND")
_CHANNEL_HAS_CONSUMERS = failure(409, "CHANNEL_HAS_CONSUMERS")
_REDRIVE_RUNS = failure(409, "REDRIVE_RUNS")
_MESSAGE_NOT_READY = failure(404, "MESSAGE_NOT_READY")

_RATE = Parameter("rate", {"type": "integer", "minimum": 1, "description": "messages a second"})
_MAX = Parameter("max", {"type": "integer", "minimum": 1, "description": "messages that are put back, at most"})
_DRY_RUN = Parameter(
    "dry_run",
    {"type": "boolean", "default": False, "description": "only answer how many messages are there, and how many stay"},
)
_STOP = Parameter("stop", {"type": "boolean", "default": False, "description": "end the redrive that runs"})
_NUMBERS = ("total", "redriven", "others", "rate", "started")
_PROGRESS: dict[str, Any] = {
    JSON: {
        "type": "object",
        "properties": {
            "state": {"type": "string", "enum": list(STATES)},
            **{name: {"type": "integer"} for name in _NUMBERS},
            "error": {"type": "string"},
        },
        "required": ["state", *_NUMBERS, "error"],
    }
}
_FINISHED = {JSON: {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}}
_NOT_FOUND = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")

_log = Logger()


class Redriving(Section):
    """Puts dead letters of a broker back to their channels."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._pump = context.pump
        self._redrives = Redrives()

    @endpoint(
        "POST",
        _PATH,
        "Put the dead letters of a channel back, or stop that",
        required=(TOPIC, CHANNEL),
        optional=(_RATE, _MAX, _DRY_RUN, _STOP, MESSAGE_ID),
        success=_PROGRESS,
        errors={
            400: [*CHANNEL_WORDS, "EPHEMERAL_CHANNEL", "INVALID_RATE", "INVALID_MAX"]
            + ["INVALID_DRY_RUN", "INVALID_STOP", "INVALID_ID"],
            404: [*_NOT_FOUND, "DEAD_LETTERS_NOT_FOUND", "REDRIVE_NOT_FOUND", "MESSAGE_NOT_READY"],
            409: ["CHANNEL_HAS_CONSUMERS", "REDRIVE_RUNS", "MESSAGE_NOT_MOVED"],
            500: ["INTERNAL_ERROR"],
            503: ["EXITING"],
        },
    )
    def redrive(self, request: HttpRequest) -> Answer | None:
        """POST /v2/channel/redrive"""
        return self._with_rights(request, partial(self._redrive, request))

    @endpoint(
        "GET",
        _PATH,
        "How far the last redrive of a channel is",
        required=(TOPIC, CHANNEL),
        success=_PROGRESS,
        errors={400: [*CHANNEL_WORDS, "EPHEMERAL_CHANNEL"], 404: [*_NOT_FOUND, "REDRIVE_NOT_FOUND"]},
    )
    def progress(self, request: HttpRequest) -> Answer | None:
        """GET /v2/channel/redrive"""
        return self._with_rights(request, lambda channel: document(self._last(channel).progress()))

    @endpoint(
        "POST",
        "/v2/channel/finish",
        "Finish one message that waits in a channel without consumers",
        required=(TOPIC, CHANNEL, MESSAGE_ID),
        success=_FINISHED,
        errors={
            400: [*CHANNEL_WORDS, "EPHEMERAL_CHANNEL", "MISSING_ARG_ID", "INVALID_ID"],
            404: [*_NOT_FOUND, "MESSAGE_NOT_READY"],
            409: ["CHANNEL_HAS_CONSUMERS", "MESSAGE_NOT_MOVED"],
            **NOT_STORED,
        },
    )
    def finish(self, request: HttpRequest) -> Answer | None:
        """POST /v2/channel/finish"""
        params = parameters(request.query)
        channel, only = self._channel(params), message_id(params)
        done = document({"id": only.decode()})

        def answer(error: Exception | None) -> None:
            request.answer_later(done if error is None else INTERNAL_ERROR)

        def begin(ended: Callable[[], None]) -> Redrive:
            return Finishing(self._broker.topics[channel.topic.name], channel, only, self._pump.now(), ended)

        return self._move_one(request, channel, begin, lambda _: self._broker.checkpointer.ask(answer))

    def _move_one(
        self,
        request: HttpRequest,
        channel: Channel,
        begin: Callable[[Callable[[], None]], Redrive],
        then: Callable[[Redrive], None],
    ) -> Answer | None:
        """
        Take one message out of a channel with what `begin` returns, which gets what it calls at its end. After a
        success `then` is called, otherwise the request is answered.
        """
        if channel.consumers:
            return _CHANNEL_HAS_CONSUMERS
        if self._broker.stopping:
            return EXITING

        def ended() -> None:
            self._pump.wake()
            if begun.redriven:
                then(begun)
            elif begun.state == DONE:
                request.answer_later(_MESSAGE_NOT_READY)
            else:
                moved = failure(409, "MESSAGE_NOT_MOVED", detail=begun.error) if begun.state == FAILED else EXITING
                request.answer_later(moved)

        try:
            begun = begin(ended)
        except (Exiting, ChannelFull):
            return EXITING
        self._pump.wake()
        return None

    def _with_rights(self, request: HttpRequest, serve: Callable[[Channel], Answer | None]) -> Answer | None:
        """Serve a request whose client has the right for both channels. Refused."""
        query = parameters(request.query)
        channel = self._channel(query)
        letter_topic = dead_letter_topic(channel.policy, channel.topic.name)
        # The authorizer may take its time, and then there may be another channel of this name.
        return request.require(ADMIN, letter_topic, channel.name, lambda: serve(self._channel(query)))

    def _redrive(self, request: HttpRequest, channel: Channel) -> Answer | None:
        """Begin or stop a redrive. Refused."""
        params = parameters(request.query)
        if truth(params, _STOP.name):
            found = self._last(channel)
            found.stop()
            self._pump.wake()
            return document(found.progress())
        rate, limit = whole_number(params, _RATE.name, 0, 1), whole_number(params, _MAX.name, 0, 1)
        is_dry_run = truth(params, _DRY_RUN.name)
        letter_topic, letters = self._letters(channel)
        if is_dry_run:
            self._preview(request, channel, letters, rate)
            return None
        last = self._redrives.get(channel)
        if last is not None and last.state == RUNNING:
            return _REDRIVE_RUNS
        topic = self._broker.topics[channel.topic.name]
        if MESSAGE_ID.name in params:
            only = message_id(params)

            def begin(ended: Callable[[], None]) -> Redrive:
                return Redrive(topic, channel, letter_topic, letters, 0, 0, self._pump.now(), only, ended)

            return self._move_one(request, letters, begin, lambda one: request.answer_later(document(one.progress())))
        if letters.consumers:
            return _CHANNEL_HAS_CONSUMERS
        if self._broker.stopping:
            return EXITING
        try:
            begun = Redrive(topic, channel, letter_topic, letters, rate, limit, self._pump.now())
        except (Exiting, ChannelFull):
            return EXITING
        self._redrives.add(channel, begun)
        self._pump.wake()
        return document(begun.progress())

    def _preview(self, request: HttpRequest, channel: Channel, letters: Channel, rate: int) -> None:
        """Answer what a redrive would read."""

        def answer(total: int, others: int, error: BackendError | None) -> None:
            if error is not None:
                _log.error("{target}: {error}", target=request.target.decode("latin-1"), error=str(error))
            request.answer_later(document(preview(total, others, rate)) if error is None else INTERNAL_ERROR)

        RedrivePreview(channel, letters, self._pump.now(), answer)
        self._pump.wake()

    def _channel(self, params: Parameters) -> Channel:
        channel = channel_named(self._broker, params)
        if channel.ephemeral:
            raise Refused(_EPHEMERAL_CHANNEL)
        return channel

    def _last(self, channel: Channel) -> Redrive:
        """Return the last redrive of a channel. Refused."""
        found = self._redrives.get(channel)
        if found is None:
            raise Refused(_REDRIVE_NOT_FOUND)
        return found

    def _letters(self, channel: Channel) -> tuple[Topic, Channel]:
        """Return the dead-letter topic of a channel, and the channel of the same name there. Refused."""
        letter_topic = self._broker.topics.get(dead_letter_topic(channel.policy, channel.topic.name))
        letters = None if letter_topic is None else letter_topic.channels.get(channel.name)
        if letter_topic is None or letters is None or letter_topic is channel.topic:
            raise Refused(_DEAD_LETTERS_NOT_FOUND)
        return letter_topic, letters
