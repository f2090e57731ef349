"""
GET /v2/subscribe/websocket: messages and their answers on a WebSocket (RFC 6455). wsproto reads and writes the frames.

    client (`client_message`)                      server, each a text frame with a JSON object
    {"max_in_flight": 10}                          {"messages": [...]}               as a poll has them
    {"finish": ["5f1c....1", ...]}                 {"failed": [{"token", "error"}]}  only failures are answered
    {"requeue": [...], "delay": 500}               {"paused": true, "draining": false}
    {"touch": [...]}

Theory of operation. One read may have thousands of small frames, so they are read for STEP_SECONDS a turn, and nothing
more is received meanwhile. When the client does not read what is sent, the connection reads nothing from it, so its
commands wait, too. After `heartbeat_seconds` without input the server sends a ping; a client that is silent for as long
again has left. The server closes with

    1001  the channel is deleted, or the broker stops      1007  a message is not JSON, or not UTF-8
    1002  the input is no WebSocket frame                  1008  a wrong command; the right was withdrawn
    1003  a message is binary                              1009  a message is larger than MAX_TEXT
    1011  the subscription failed

and waits CLOSE_SECONDS for the close frame of the client, so that the connection ends in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from nsqtw.api.subscribe.client_message import MAX_TEXT, Broken, read
from nsqtw.api.subscribe.handshake import accept
from nsqtw.api.subscribe.stream import MessageStream
from nsqtw.api.subscribe.subscribers import Subscribers
from nsqtw.api.subscribe.subscription import Message, Source, State
from nsqtw.core.timers import Timer
from nsqtw.gocompat.text import json_text
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer

STEP_EVENTS = 64
STEP_SECONDS = 0.002
CLOSE_SECONDS = 5.0
_GOING_AWAY = ("EXITING", "CHANNEL_NOT_FOUND")


class WebSocket(MessageStream):
    """A client on a WebSocket. Upgraded."""

    kind = "websocket"
    heartbeat_seconds = 30.0

    def __init__(self, subscribers: Subscribers, request: HttpRequest, source: Source) -> None:
        super().__init__(subscribers, request, source)
        self._head = accept(request.version, request.fields)
        self._frames = Connection(ConnectionType.SERVER)
        self._text: list[str] = []
        self._text_size = 0
        self._is_reading_later = False
        self._is_disconnected = False
        self._last_input = self._pump.now()
        self._is_pinged = False
        self._closing = _Closing(self._disconnect)

    # -- Upgraded

    def receive(self, data: bytes) -> None:
        """Upgraded API"""
        self._last_input = self._pump.now()
        self._is_pinged = False
        if self._is_disconnected:
            return
        self._frames.receive_data(data)
        if not self._is_reading_later and self._read_step():
            self._is_reading_later = True
            self._request.hold_input()
            self._subscribers.context.limits.long_work.add(self._steps())

    def ended(self) -> None:
        """Streamer API"""
        super().ended()
        self._is_disconnected = True
        self._broker.timers.cancel(self._closing)

    # -- from the turns

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        if not self._is_over and self._is_pinged and now >= self._heartbeat_due:
            self.abort()
        return super().on_timer(now)

    # -- the format

    def _answer(self) -> None:
        self._request.upgrade(self._head, self, self.stop)

    def _encode_messages(self, messages: list[Message]) -> bytes:
        return self._encode({"messages": messages})

    def _encode_state(self, state: State) -> bytes:
        return self._encode(state)

    def _encode_heartbeat(self) -> bytes:
        self._is_pinged = True
        return self._frames.send(Ping())

    @property
    def _heartbeat_due(self) -> float:
        """When the next ping is to be sent, or after one the connection given up, unless there is input before."""
        return self._last_input + self.heartbeat_seconds * (2 if self._is_pinged else 1)

    def _finish(self, answer: Answer) -> None:
        if answer.word in _GOING_AWAY:
            self._close(CloseReason.GOING_AWAY, answer.word)
        else:
            self._close(
                CloseReason.INTERNAL_ERROR if answer.status >= 500 else CloseReason.POLICY_VIOLATION, answer.word
            )

    def _encode(self, value: Any) -> bytes:
        return self._frames.send(TextMessage(json_text(value).decode()))

    # -- reading

    def _steps(self) -> Iterator[None]:
        """Read on in later turns."""
        while self._read_step():
            yield
        self._is_reading_later = False
        self._request.take_input()

    def _read_step(self) -> bool:
        """Read what the client has sent, for STEP_SECONDS at most. Returns whether there may be more."""
        until = self._pump.now() + STEP_SECONDS
        try:
            for count, event in enumerate(self._frames.events(), 1):
                self._handle(event)
                if self._is_disconnected:
                    return False
                if count >= STEP_EVENTS or self._pump.now() >= until:
                    return True
        except Broken as broken:
            self._leave(self._pump.now())
            self._close(broken.code, broken.reason)
        return False

    def _handle(self, event: Event) -> None:
        if isinstance(event, CloseConnection):
            self._closed_by_client(event)
        elif self._is_over:
            return
        elif isinstance(event, Ping):
            self._send(self._frames.send(event.response()), self._pump.now())
        elif isinstance(event, BytesMessage):
            raise Broken(CloseReason.UNSUPPORTED_DATA, "a message must be text")
        elif isinstance(event, TextMessage):
            self._receive_text(event)

    def _receive_text(self, event: TextMessage) -> None:
        """A message, or a part of it. Broken."""
        self._text_size += len(event.data)
        if self._text_size > MAX_TEXT:
            raise Broken(CloseReason.MESSAGE_TOO_BIG, f"a message has at most {MAX_TEXT} characters")
        if event.data:
            self._text.append(event.data)
        if event.message_finished:
            text = "".join(self._text)
            self._text, self._text_size = [], 0
            self._execute(text)

    def _execute(self, text: str) -> None:
        """Execute the commands of a message. Broken."""
        message, subscribers = read(text), self._subscribers
        names = self._source.topic, self._source.channel
        if message.max_in_flight is not None:
            if message.max_in_flight > self._broker.options.max_rdy_count:
                raise Broken(
                    CloseReason.POLICY_VIOLATION,
                    f"'max_in_flight' must be at most {self._broker.options.max_rdy_count}, which is --max-rdy-count",
                )
            self._subscription.set_credit(message.max_in_flight)
        failed = [
            *subscribers.finish(*names, message.finish)[1],
            *subscribers.requeue(*names, message.requeue, message.delay_ms / 1000)[1],
            *subscribers.touch(*names, message.touch)[1],
        ]
        if failed:
            self._send(self._encode({"failed": failed}), self._pump.now())

    # -- closing

    def _closed_by_client(self, event: CloseConnection) -> None:
        """The client closes, or its input is no WebSocket frame."""
        self._leave(self._pump.now())
        if self._frames.state is ConnectionState.REMOTE_CLOSING:
            self._request.send(self._frames.send(event.response()))
        elif self._frames.state is ConnectionState.OPEN:  # so wsproto reports bytes that it cannot read
            self._request.send(self._frames.send(CloseConnection(event.code, event.reason)))
        self._disconnect()

    def _close(self, code: CloseReason, reason: str) -> None:
        """Send a close frame, and wait for the client's."""
        if self._frames.state is ConnectionState.OPEN:
            self._request.send(self._frames.send(CloseConnection(code, reason)))
            self._broker.timers.schedule(self._pump.now() + CLOSE_SECONDS, self._closing)
            self._pump.wake()

    def _disconnect(self) -> None:
        self._is_disconnected = True
        self._broker.timers.cancel(self._closing)
        self._request.finish()


class _Closing(Timer):
    """The wait for the close frame of a client, after which `over` is called."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__()
        self._over = over

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        self._over()
        return None
