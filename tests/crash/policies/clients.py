"""
Clients of V2 and V3 with one interface, for messages with headers.

A publisher over HTTP or V3 says whether a message was stored, was refused by a bound, or was refused for another
reason: then it may be in the log, and a restart may find it. A consumer asks for headers: with IDENTIFY over V2.
"""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Container, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from tests.crash.harness import Harness
from tests.crash.promises import expect
from tests.protocols import v3_frames
from tests.wire import (
    ANSWER_SECONDS,
    CLOSE_WAIT,
    HOST,
    MESSAGE,
    RESPONSE,
    Client,
    Closed,
    Frame,
    closed_on_failure,
    message_of,
)

STORED, OVER_BOUND, REFUSED = "stored", "over its bound", "refused"
NEVER_MS = 900_000
"""A timeout that does not pass."""
_HEADED = 3
_SUBSCRIPTION = 1
_NOTICES = ("PAUSED", "RESUMED")
_BOUND = "has reached its"
_OK, _TOO_MANY, _UNAVAILABLE = 200, 429, 503


class Got(NamedTuple):
    """A message as a consumer gets it."""

    id: bytes
    attempts: int
    headers: Mapping[str, str]
    body: bytes


class Consumer(Protocol):
    """
    A subscription that was given credit for some messages, with a message timeout, or 0 for the broker's. OSError or
    Closed when the broker is gone. Broken when it says what it may not: what is finished or requeued has not timed out,
    so that a FIN or REQ that fails is an answer to a wrong delivery.
    """

    def next(self) -> Got | None:
        """Return the next message; None when the broker has done all that it was told, and sends no more."""

    def finish(self, message: Got) -> None:
        """FIN."""

    def requeue(self, message: Got, delay_ms: int) -> None:
        """REQ."""

    def pause(self) -> None:
        """Ask for no more messages."""

    def leave(self) -> None:
        """Ask for no more messages, and for a sign when all is done."""

    def close(self) -> None:
        """End the connection."""


class V2Consumer:
    """A consumer over V2 that asked for headers."""

    def __init__(self, house: Harness, topic: str, channel: str, credit: int, timeout_ms: int = NEVER_MS) -> None:
        self._client = house.client()
        with closed_on_failure(self._client):
            self._client.identify(msg_timeout=timeout_ms, headers=True)
            self._client.sub(topic, channel, ready=credit)

    def next(self) -> Got | None:
        frame = self._client.frame()
        if frame == Frame(RESPONSE, CLOSE_WAIT):
            return None
        expect(frame.kind in (MESSAGE, _HEADED), "a consumer of V2", frame)
        message, headers = message_of(frame.data), {}
        body = message.body
        if frame.kind == _HEADED:
            (size,) = struct.unpack_from(">H", body)
            headers, body = v3_frames.decoded(body[2 : 2 + size]), body[2 + size :]
        return Got(message.id, message.attempts, headers, body)

    def finish(self, message: Got) -> None:
        self._client.send(b"FIN %s\n" % message.id)

    def requeue(self, message: Got, delay_ms: int) -> None:
        self._client.send(b"REQ %s %d\n" % (message.id, delay_ms))

    def pause(self) -> None:
        self._client.rdy(0)

    def leave(self) -> None:
        self._client.send(b"CLS\n")

    def close(self) -> None:
        self._client.close()


class V3Connection:
    """A connection of V3: what is sent, and the frames that come."""

    def __init__(self, house: Harness) -> None:
        self._client = Client(house.tcp_port, v3_frames.MAGIC)
        self._socket: socket.socket = self._client._socket
        with closed_on_failure(self._client):
            self.send(v3_frames.hello())
            answer = self.frame()
            expect(answer.name == "WELCOME", "HELLO", answer)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> v3_frames.Answer:
        """The next frame that is no PING, which is answered, and no notice of a pause."""
        while True:
            (size,) = struct.unpack(">I", head := self._client._read(4))
            (answer,) = v3_frames.answers(head + self._client._read(size))
            if answer.name == "PING":
                self.send(v3_frames.frame(17, answer.id))
            elif answer.name == "DRAINING":
                raise Closed  # it is about to be
            elif answer.name not in _NOTICES:
                return answer

    def close(self) -> None:
        self._client.close()


class V3Consumer:
    """A consumer over V3. FINs of several messages that were delivered together are a range."""

    def __init__(self, house: Harness, topic: str, channel: str, credit: int, timeout_ms: int = NEVER_MS) -> None:
        self._connection = V3Connection(house)
        self._came: list[Got] = []
        names = topic.encode(), channel.encode()
        with closed_on_failure(self._connection):
            self._connection.send(v3_frames.subscribe(_SUBSCRIPTION, *names, credit=credit, timeout=timeout_ms))
            answer = self._connection.frame()
            expect(answer.name == "SUBSCRIBED", "SUBSCRIBE", answer)

    def next(self) -> Got | None:
        while not self._came:
            answer = self._connection.frame()
            if answer.name == "PONG":
                return None
            expect(answer.name == "DELIVER", "a consumer of V3", answer)
            self._came = [
                Got(b"%016x" % one.id, one.attempts, one.headers, one.body) for one in v3_frames.messages_of(answer)
            ]
        return self._came.pop(0)

    def finish(self, message: Got) -> None:
        self._connection.send(v3_frames.fin(_SUBSCRIPTION, (int(message.id, 16), 1)))

    def requeue(self, message: Got, delay_ms: int) -> None:
        self._connection.send(v3_frames.req(_SUBSCRIPTION, delay_ms, (int(message.id, 16), 1)))

    def pause(self) -> None:
        self._connection.send(v3_frames.credit(_SUBSCRIPTION, 0, replaces=True))

    def leave(self) -> None:
        self.pause()
        self._connection.send(v3_frames.ping())

    def close(self) -> None:
        self._connection.close()


class Publisher(Protocol):
    """Publishes one message at a time. OSError or Closed when the broker is gone."""

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str], delay_ms: int) -> str:
        """Return STORED, OVER_BOUND or REFUSED."""

    def close(self) -> None:
        """End the connection."""


class HttpPublisher:
    """Each message is a request; headers are fields."""

    def __init__(self, house: Harness) -> None:
        self._connection = http.client.HTTPConnection(HOST, house.http_port, timeout=ANSWER_SECONDS)

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str], delay_ms: int) -> str:
        return self.ask(topic, body, headers, {"defer": delay_ms} if delay_ms else {})[0]

    def ask(self, topic: str, body: bytes, headers: Mapping[str, str], options: Mapping[str, Any]) -> tuple[str, bytes]:
        """The outcome, and what the broker answered."""
        fields = {f"X-NSQ-{name}": value.encode() for name, value in headers.items()}
        status, answer = self._ask("POST", f"/pub?{urlencode({'topic': topic, **options})}", body, fields)
        expect(status in (_OK, _TOO_MANY, _UNAVAILABLE), "a publish over HTTP", (status, answer))
        return {_OK: STORED, _TOO_MANY: OVER_BOUND}.get(status, REFUSED), answer

    def order(self, path: str, allowed: Container[int], method: str = "POST", body: bytes = b"") -> tuple[int, bytes]:
        """The status, one of these or that of a broker which stops, and what the broker answered."""
        status, answer = self._ask(method, path, body, {})
        expect(status in allowed or status == _UNAVAILABLE, f"{method} {path}", (status, answer))
        return status, answer

    def _ask(self, method: str, path: str, body: bytes, fields: Mapping[str, bytes]) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, fields)
            with self._connection.getresponse() as response:
                return response.status, response.read()
        except http.client.HTTPException as failure:
            raise Closed from failure

    def close(self) -> None:
        self._connection.close()


class V3Publisher:
    """Each message is a PUBLISH; the next one when it is confirmed."""

    def __init__(self, house: Harness) -> None:
        self._connection = V3Connection(house)
        self._number = 0

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str], delay_ms: int) -> str:
        self._number += 1
        given = [dict(headers)] if headers else None
        delays = [delay_ms] if delay_ms else None
        self._connection.send(v3_frames.publish(self._number, [body], topic.encode(), given, delays))
        answer = self._connection.frame()
        if answer.name == "CONFIRM":
            expect(v3_frames.confirmed([answer]) == [self._number], f"PUBLISH {self._number}", answer)
            return STORED
        expect((answer.name, answer.id) == ("REJECT", self._number), f"PUBLISH {self._number}", answer)
        return OVER_BOUND if _BOUND in v3_frames.error_of(answer.payload)[0] else REFUSED

    def close(self) -> None:
        self._connection.close()


CONSUMERS: tuple[type[V2Consumer] | type[V3Consumer], ...] = (V2Consumer, V3Consumer)
PUBLISHERS: tuple[type[HttpPublisher] | type[V3Publisher], ...] = (HttpPublisher, V3Publisher)
