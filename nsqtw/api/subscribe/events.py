"""
GET /v2/subscribe/events: messages as server-sent events.

    id: 0269ac8e2d3f4001                      the id of the message
    data: {"id":"0269ac8e2d3f4001",...}       its document, as a poll has it
                                              an empty line
    event: state                              the channel's pause or the broker's drain has changed
    data: {"paused":true,"draining":false}

    event: end                                nothing follows; `error` is the word of an HTTP error
    data: {"error":"CHANNEL_NOT_FOUND"}

    :                                         a heartbeat

A client has at most `max_in_flight` messages that it has not finished or requeued. A browser that connects again sends
Last-Event-ID, which is ignored: the messages that it had not finished are delivered again.
"""

from __future__ import annotations

from nsqtw.api.subscribe.stream import MessageStream
from nsqtw.api.subscribe.subscription import Message, State
from nsqtw.gocompat.text import json_text
from nsqtw.http.responses import Answer

CONTENT_TYPE = b"text/event-stream"
_HEARTBEAT = b":\n\n"


class EventStream(MessageStream):
    """A client that gets messages as events."""

    kind = "events"

    def _answer(self) -> None:
        self._request.stream(CONTENT_TYPE, self, self.stop)

    def _encode_messages(self, messages: list[Message]) -> bytes:
        return b"".join([b"id: %b\n%b" % (message["id"].encode(), _data(message)) for message in messages])

    def _encode_state(self, state: State) -> bytes:
        return b"event: state\n" + _data(state)

    def _encode_heartbeat(self) -> bytes:
        return _HEARTBEAT

    def _finish(self, answer: Answer) -> None:
        self._request.send(b"event: end\n" + _data({"error": answer.word}))
        self._request.finish()


def _data(value: Message | State) -> bytes:
    """Return the data of an event. JSON has no line ends."""
    return b"data: %b\n\n" % json_text(value)
