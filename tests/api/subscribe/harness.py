"""Clients that consume over HTTP, and the broker behind them."""

from __future__ import annotations

import json
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, Pong, TextMessage

from tests.http.broker_fixture import DONE, Browser, Reply, Web, replies, request

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ABOUT = "topic=t&channel=c"
HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": KEY,
}
Message = dict[str, Any]


class SubscribeWeb(Web):
    """A broker that lets HTTP clients consume, with the channel c of the topic t."""

    def __init__(self, **options: Any) -> None:
        super().__init__(http_subscribe=True, max_msg_size=1000, max_body_size=10_000, **options)
        assert self.post("/topic/create?topic=t").outcome == DONE
        assert self.post("/channel/create?topic=t&channel=c").outcome == DONE

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            assert self.post("/pub?topic=t", body).status == 200

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.core.now += seconds
        self.pump.wake()
        self.turn()

    def poll(self, query: str = "", **fields: str) -> Poll:
        """Begin a poll."""
        return Poll(self, query, **fields)

    def take(self, query: str = "&wait=0s") -> list[Message]:
        """Poll, and return the messages that are there."""
        messages = self.poll(query).messages
        assert messages is not None, "it is not answered"
        return messages

    def tell(self, verb: str, *tokens: str, query: str = "") -> Any:
        """Finish, requeue or touch; returns the answer."""
        reply = self.post(f"/v2/subscribe/{verb}?{ABOUT}{query}", "\n".join(tokens).encode())
        assert reply.status == 200, reply.body
        return reply.json

    @property
    def counts(self) -> tuple[int, int]:
        """Depth and messages in flight of the channel."""
        channel = self.core.channel()
        return channel.depth, channel.in_flight_count


class Poll:
    """A poll on a connection of its own."""

    def __init__(self, web: SubscribeWeb, query: str, **fields: str) -> None:
        self._browser = web.connect()
        self._browser.send(request("POST", f"/v2/subscribe/poll?{ABOUT}{query}", **fields))
        self._replies: list[Reply] = []

    @property
    def reply(self) -> Reply | None:
        """The answer, if there is one yet."""
        self._replies += self._browser.read()
        return self._replies[0] if self._replies else None

    @property
    def messages(self) -> list[Message] | None:
        """The messages of the answer, if there is one yet."""
        reply = self.reply
        if reply is None:
            return None
        assert reply.status == 200, reply.body
        return reply.json["messages"]

    @property
    def bodies(self) -> list[str] | None:
        messages = self.messages
        return None if messages is None else [message["body"] for message in messages]

    def lose(self) -> None:
        self._browser.lose()


class EventSource:
    """A client of the events."""

    def __init__(self, web: SubscribeWeb, query: str = "", **fields: str) -> None:
        self.browser = web.connect()
        self.browser.send(request("GET", f"/v2/subscribe/events?{ABOUT}{query}", **fields))
        data = _read(self.browser)
        self.head, _, self._data = data.partition(b"\r\n\r\n")

    @property
    def is_stream(self) -> bool:
        return b" 200 OK\r\nContent-Type: text/event-stream\r\n" in self.head

    def read(self) -> bytes:
        """Return what has arrived since the last time."""
        data, self._data = self._data + _read(self.browser), b""
        return data

    def messages(self) -> list[Message]:
        return [
            json.loads(line[len("data: ") :])
            for event in self.read().decode().split("\n\n")
            if event.startswith("id: ")
            for line in event.splitlines()
            if line.startswith("data: ")
        ]


class WebSocketClient:
    """A client on a WebSocket."""

    def __init__(self, web: SubscribeWeb, query: str = "", **fields: str) -> None:
        self.browser = web.connect()
        self.browser.send(request("GET", f"/v2/subscribe/websocket?{ABOUT}{query}", **{**HANDSHAKE, **fields}))
        self.head, _, data = _read(self.browser).partition(b"\r\n\r\n")
        self._frames = Connection(ConnectionType.CLIENT)
        if self.is_open:
            self._frames.receive_data(data)

    @property
    def is_open(self) -> bool:
        return self.head.startswith(b"HTTP/1.1 101 ")

    @property
    def reply(self) -> Reply:
        """The answer to a handshake that was refused."""
        (reply,) = replies(self.head + b"\r\n\r\n" + b"x" * 1000)
        return reply

    def say(self, value: Any) -> None:
        """Send a JSON text."""
        self.send(TextMessage(json.dumps(value)))

    def send(self, event: Event) -> None:
        self.browser.send(bytes(self._frames.send(event)))

    def events(self) -> list[Event]:
        """Return what has arrived since the last time."""
        self._frames.receive_data(_read(self.browser))
        return list(self._frames.events())

    def read(self) -> list[Any]:
        """Return the JSON texts that have arrived since the last time."""
        return [json.loads(event.data) for event in self.events() if isinstance(event, TextMessage)]

    def messages(self) -> list[Message]:
        return [message for text in self.read() for message in text["messages"]]

    def close_code(self) -> tuple[int, str | None]:
        """Return the code and the reason of the close frame that has arrived."""
        (event,) = (event for event in self.events() if isinstance(event, CloseConnection))
        return int(event.code), event.reason

    def heartbeats(self) -> int:
        """Return how many pings have arrived; they are answered."""
        pings = [event for event in self.events() if isinstance(event, Ping)]
        for ping in pings:
            self.send(Pong(ping.payload))
        return len(pings)


def _read(browser: Browser) -> bytes:
    browser.web.turn()
    data = browser.transport.value()
    browser.transport.clear()
    return data
