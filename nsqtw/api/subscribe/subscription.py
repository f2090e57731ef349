"""
A consumer of a channel for clients of HTTP.

Theory of operation. `Subscription` does for a poll, a stream or a WebSocket the work of a V2 session: it joins
the channel, has a `Consumer` with its credit, makes documents of the frames that it is given, and leaves. Its
`reader` is whichever of the three it serves. The consumer is given nothing before the channel is durable, and nothing
after the end.

Messages that are in flight when the client leaves are requeued at once: HTTP clients come and go, and nobody else can
finish them. (A consumer of V2 has its message timeout for that, unless --requeue-on-disconnect says otherwise.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from attrs import frozen

from nsqtw.api.message_document import readable
from nsqtw.api.subscribe.tokens import MAX_ATTEMPTS, Token, Tokens
from nsqtw.core.broker import Broker
from nsqtw.core.client import Client, ClientState
from nsqtw.core.consumer import Consumer
from nsqtw.core.in_flight import Delivery
from nsqtw.core.segment import BODY_AT, ID_AT, MESSAGE_HEAD, SIZE_BYTES
from nsqtw.errors import ClientError
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, failure
from nsqtw.interfaces import MAX_CLIENT_TEXT
from nsqtw.message_headers import decode_headers
from nsqtw.protocols.client import BrokerClient, new_client
from nsqtw.protocols.subscription import BrokerSubscription

PROTOCOL = "HTTP"
"""The protocol version of these clients in /stats."""

CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")
SUBSCRIBE_DISABLED = failure(403, "SUBSCRIBE_DISABLED")


Message = dict[str, Any]
"""The JSON document of a delivery."""
State = dict[str, bool]
"""`paused` and `draining`."""
USUAL: Final[State] = {"paused": False, "draining": False}


@frozen
class Source:
    """The topic and the channel of a subscription. `msg_timeout` is in seconds."""

    topic: str
    channel: str
    msg_timeout: float


class Reader(Protocol):
    """The part of a subscription that knows its client. Every method may be called within a step of the broker."""

    def ready(self, error: Answer | None) -> None:
        """Messages may be delivered from now on; or never, because of `error`."""

    def deliver(self, messages: list[Message]) -> None:
        """Send these to the client, at the end of the turn."""

    def freed(self) -> None:
        """Messages have left flight."""

    def state_changed(self) -> None:
        """`Subscription.state` changed."""

    def end(self, answer: Answer) -> None:
        """The channel is deleted: leave the subscription at the end of the turn. `answer` is for the client."""


class Subscription:
    """Subscription `number` of a broker, by `client`. It begins with `join`. `left` is called when it has ended."""

    def __init__(
        self,
        broker: Broker,
        tokens: Tokens,
        number: int,
        source: Source,
        client: Client,
        reader: Reader,
        left: Callable[[Subscription], None],
    ) -> None:
        self.number = number
        self.source = source
        self.client = client
        self._broker = broker
        self._tokens = tokens
        self._reader = reader
        self._left = left
        self._broker_client: BrokerClient | None = None
        self._messages: BrokerSubscription | None = None
        self._is_ready = False
        self._is_blocked = False
        self._consumer = Consumer(client, broker.timers, self._deliver, self._end, source.msg_timeout)
        self._consumer.deliver_with_headers = self._deliver
        self._consumer.is_blocked = True

    def join(self, now: float) -> None:
        """Become a consumer of the channel, which is made when there is none. ClientError, and the log line."""
        broker_client = BrokerClient(self._broker, self.client)
        try:
            channel = broker_client.join(self.source.topic, self.source.channel, self._consumer, now)
        except ClientError as error:
            broker_client.log_refusal(error)
            broker_client.leave()
            raise
        self._broker_client = broker_client
        self._messages = BrokerSubscription(self._consumer, channel, self._broker.options)
        self._consumer.on_timeout = self._time_out
        self._consumer.on_pause = self._pause_changed
        broker_client.on_drain(self._reader.state_changed)
        broker_client.when_saved(channel, self._saved)

    # -- for readers

    @property
    def state(self) -> State:
        """`paused`: an operator paused the channel or its topic. `draining`: a drain has begun."""
        if self._messages is None:
            return USUAL
        return {"paused": self._messages.is_paused, "draining": self._broker.is_draining}

    @property
    def in_flight_count(self) -> int:
        """The number of messages in flight."""
        return self._consumer.in_flight.count

    def set_credit(self, count: int) -> None:
        """Have up to `count` messages in flight, or as many as --max-rdy-count allows."""
        if self._messages is not None:
            self._messages.set_ready(min(count, self._broker.options.max_rdy_count))

    def block(self) -> None:
        """Deliver nothing until `unblock`."""
        self._is_blocked = self._consumer.is_blocked = True

    def unblock(self) -> None:
        """Deliver again."""
        self._is_blocked = False
        self._consumer.is_blocked = not self._is_ready
        if self._messages is not None:
            self._messages.channel.wake()

    def leave(self, now: float) -> None:
        """Leave the channel. The messages in flight are requeued, unless the broker stops."""
        messages, self._messages = self._messages, None
        broker_client, self._broker_client = self._broker_client, None
        if messages is None or broker_client is None:
            return
        broker_client.leave()
        self._consumer.on_pause = None
        self._left(self)
        self.client.state = ClientState.CLOSING
        self._consumer.is_blocked = True
        channel = messages.channel
        if not (channel.exiting or self._broker.stopping):
            for message_id, _ in list(self._consumer.in_flight.items()):
                channel.requeue(self._consumer, message_id, 0.0, now)
        channel.leave(self._consumer)

    # -- for tokens

    def finish(self, token: Token, now: float) -> ClientError | None:
        """Finish a message. Returns why that was not possible, or None."""
        messages = self._holding(token)
        if messages is None:
            return _over("FIN", token)
        for error in messages.finish_all([token.message_id], now):
            return error
        self._reader.freed()
        return None

    def requeue(self, token: Token, delay: float, now: float) -> ClientError | None:
        """Have a message delivered again after `delay` seconds. Returns why that was not possible, or None."""
        messages = self._holding(token)
        if messages is None:
            return _over("REQ", token)
        error = messages.requeue_one(token.message_id, delay, now)
        if error is None:
            self._reader.freed()
        return error

    def touch(self, token: Token, now: float) -> ClientError | None:
        """Restart the timeout of a message. Returns why that was not possible, or None."""
        messages = self._holding(token)
        return _over("TOUCH", token) if messages is None else messages.touch_one(token.message_id, now)

    def log_refusal(self, error: ClientError) -> None:
        """Write the line about a refused command."""
        if self._broker_client is not None:
            self._broker_client.log_refusal(error)

    # -- from the core

    def _deliver(self, frames: bytes, headers: Sequence[bytes] = ()) -> None:
        self._reader.deliver([*self._documents(frames, headers)])

    def _end(self) -> None:
        self._reader.end(CHANNEL_NOT_FOUND)

    def _pause_changed(self, is_paused: bool) -> None:
        self._reader.state_changed()

    def _time_out(self, consumer: Consumer, deliveries: list[tuple[bytes, Delivery]], now: float) -> None:
        if self._messages is not None:
            self._messages.channel.on_timeout(consumer, deliveries, now)
            self._reader.freed()

    def _saved(self, error: ClientError | None) -> None:
        if error is not None:
            self.log_refusal(error)
            self._reader.ready(subscribe_failed(error))
        elif self._messages is not None:
            self._is_ready = True
            if not self._is_blocked:
                self.unblock()
            self._reader.ready(None)

    # -- inside

    def _documents(self, frames: bytes, headers: Sequence[bytes]) -> Iterator[Message]:
        offset, index = 0, 0
        while offset < len(frames):
            size, _, timestamp_ns, attempts = MESSAGE_HEAD.unpack_from(frames, offset)
            stop = offset + SIZE_BYTES + size
            body, encoding = readable(frames[offset + BODY_AT : stop])
            message_id = frames[offset + ID_AT : offset + BODY_AT].decode()
            message: Message = {
                "id": message_id,
                "timestamp": timestamp_ns,
                "attempts": attempts,
                "body": body,
                "encoding": encoding,
                "token": self._tokens.write(self.number, message_id, attempts),
            }
            if headers and headers[index]:
                message["headers"] = decode_headers(headers[index])
            yield message
            offset = stop
            index += 1

    def _holding(self, token: Token) -> BrokerSubscription | None:
        """Return the access to the delivery that a token names; None when it is not in flight any more."""
        delivery = self._consumer.in_flight.get(token.message_id)
        if delivery is None or delivery.attempts & MAX_ATTEMPTS != token.attempts:
            return None
        return self._messages


def user_agent(request: HttpRequest) -> str:
    """Return what a request says of its program. Browsers may say much."""
    return request.fields.get(b"User-Agent", b"")[:MAX_CLIENT_TEXT].decode("latin-1")


def http_client(request: HttpRequest, broker: Broker, now: float) -> Client:
    """Return the client of a request, as /stats shows it."""
    client = new_client(broker, request.client, PROTOCOL, now, request.secured)
    client.user_agent = user_agent(request)
    client.auth_identity, client.authed = request.identity, bool(request.identity)
    return client


def subscribe_failed(error: ClientError) -> Answer:
    """Return the answer to a client that cannot subscribe."""
    return failure(503, "SUBSCRIBE_FAILED", detail=error.description)


def _over(command: str, token: Token) -> ClientError:
    text = f"{command} {token.message_id.decode()} failed delivery {token.attempts} is not in flight"
    return ClientError(f"E_{command}_FAILED", text, fatal=False)
