"""
The broker as the protocol of one connection sees it: `IBroker` and `IConsumer`, which check every command.

Theory of operation. A command is checked (names, sizes, limits), then the rights of the connection are looked up by
the same `ClientAuth` that V2 uses, and only then is it carried out. When rights have ended they are asked for again;
the command and all later ones wait in a queue meanwhile, so the order stays. Each command calls its `answered` once.

Refusals have the codes, the texts and the log lines of V2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zope.interface import implementer

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client
from nsqtw.core.consumer import Consumer
from nsqtw.core.segment import BODY_AT, ID_AT
from nsqtw.core.timers import Timer
from nsqtw.errors import ClientError
from nsqtw.interfaces import Answered, IBroker, IChannel, IConsumer
from nsqtw.protocols.access import ClientAccess, MessageAccess
from nsqtw.protocols.mpub import SIZE_BYTES, check_count, check_size, check_total
from nsqtw.protocols.parameters import checked_name, message_id_of
from nsqtw.protocols.replies import Replies, ReplySlot
from nsqtw.protocols.session import STEP_BYTES
from nsqtw.protocols.v2_auth import ClientAuth
from nsqtw.rights import MAX_SECRET_BYTES, Answer, Authorizations, Credentials, Rights, RightsListener
from nsqtw.upgrades import Secured

MAX_WAITING = STEP_BYTES
"""Maximum of waiting commands. While commands wait, no input is read; a step has no more commands than bytes."""
MIN_MSG_TIMEOUT = 1.0
"""Seconds; the bound of IDENTIFY's msg_timeout."""
_TIMESTAMP_AT, _ATTEMPTS_AT = 8, 16


class Message(NamedTuple):
    """One message as a protocol is given it."""

    id: bytes
    """16 hex digits: what finish, requeue and touch take."""
    timestamp_ns: int
    """The time of publication, of the wall clock."""
    attempts: int
    """The number of deliveries, with this one."""
    body: bytes


class _Command:
    """One command, with what V2 would call it."""

    __slots__ = ("answered", "channel", "do", "topic", "verb")

    def __init__(self, verb: bytes, topic: bytes, channel: bytes, do: Callable[[], None], answered: Answered) -> None:
        self.verb = verb
        self.topic = topic
        self.channel = channel
        self.do = do
        self.answered = answered


class _Rest(Timer):
    """Calls `over` when the next turn begins."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__()
        self._over = over

    def on_timer(self, now: float) -> float | None:
        """Timer API."""
        self._over()
        return None


class _Asking:
    """An `Authorizations` that calls `after` behind each answer."""

    def __init__(self, authorizations: Authorizations, after: Callable[[], None]) -> None:
        self._authorizations = authorizations
        self._after = after
        self.allows = authorizations.allows
        self.now = authorizations.now

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """Authorizations API."""

        def answered(outcome: Rights | Exception) -> None:
            answer(outcome)  # type: ignore[arg-type]
            self._after()

        return self._authorizations.ask(credentials, answered)

    def enter(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._authorizations.enter(listener)

    def leave(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._authorizations.leave(listener)


@implementer(IBroker)
class ClientBroker:
    """
    `broker` for one connection of the protocol named `protocol`. `changed` has the connection written to. `secured` is
    what is known of the connection's TLS; None without.
    """

    def __init__(
        self,
        broker: Broker,
        remote_address: str,
        protocol: str,
        changed: Callable[[], None],
        now: float,
        secured: Secured | None = None,
    ) -> None:
        self._broker = broker
        self._changed = changed
        host = remote_address.rpartition(":")[0].strip("[]")
        connected = int(broker.timestamp_ns(now) // 10**9)
        client = Client(remote_address, connected, client_id=host, hostname=host, version=protocol)
        if secured is not None:
            client.tls, client.common_name = True, secured.common_name
            client.tls_version, client.tls_cipher_suite = secured.version, secured.cipher_suite
        self._client = client
        self._client_auth: ClientAuth | None = None
        if broker.authorizations is not None:
            authorizations = _Asking(broker.authorizations, self._on_rights)
            self._client_auth = ClientAuth(client, authorizations, broker.log, self._refuse, self._wait, self._go_on)
        self._welcome: Replies | None = Replies(self._let_in, _do_nothing)
        self._authorizing: Answered | None = None
        self._queue: deque[_Command] = deque()
        self._current: _Command | None = None
        self._is_waiting = False
        self._rest: _Rest | None = None
        """The timer that ends the pause after too many new topics in a turn; no command is executed before."""
        self._is_running = False
        self._end: ClientError | None = None
        """Why the connection may do nothing any more."""
        self._consumer: ClientConsumer | None = None
        self._now = now
        self._access = ClientAccess(broker, client)

    # -- IBroker

    @property
    def identity(self) -> str:
        """IBroker API."""
        return self._client.auth_identity

    @property
    def needs_authorization(self) -> bool:
        """IBroker API."""
        return self._client_auth is not None and not self._client.authed

    @property
    def is_waiting(self) -> bool:
        """IBroker API."""
        return self._is_waiting or self._rest is not None

    @property
    def max_msg_size(self) -> int:
        """IBroker API."""
        return int(self._broker.options.max_msg_size)

    @property
    def max_body_size(self) -> int:
        """IBroker API."""
        return int(self._broker.options.max_body_size)

    @property
    def max_ready_count(self) -> int:
        """IBroker API."""
        return int(self._broker.options.max_rdy_count)

    def authorize(self, secret: bytes, answered: Answered, now: float) -> None:
        """IBroker API."""
        self._now = now
        try:
            if self._end is not None:
                raise ClientError(self._end.code, self._end.description)
            if self._client_auth is None:
                raise ClientError("E_AUTH_DISABLED", "AUTH disabled")
            if self._authorizing is not None:
                raise ClientError("E_INVALID", "AUTH already set")
            if len(secret) > MAX_SECRET_BYTES:
                raise ClientError("E_BAD_BODY", f"AUTH body too big {len(secret)} > {MAX_SECRET_BYTES}")
            assert self._welcome is not None, "there is one until the connection ends"
            self._authorizing = answered
            self._client_auth.show(secret, self._welcome.reserve)
        except ClientError as error:
            if self._authorizing is answered:
                self._authorizing = None
            self._say(error)
            answered(error)

    def publish(self, topic: str, bodies: Sequence[bytes], delay: float, answered: Answered, now: float) -> None:
        """IBroker API."""
        verb = b"DPUB" if delay else b"PUB" if len(bodies) == 1 else b"MPUB"
        taken = [_bytes_of(body) for body in bodies]
        name = topic.encode("utf-8", "replace")

        def put() -> None:
            topic_object = self._broker.topics.get(topic)
            is_new = topic_object is None
            if topic_object is None:
                topic_object = self._access.new_topic(verb.decode(), topic)
            topic_object.put(taken, int(delay * 1000), done)
            if is_new and self._access.must_rest:
                self._rest = _Rest(self._rested)
                self._broker.timers.schedule(self._now, self._rest)

        def done(error: Exception | None) -> None:
            if error is None:
                self._client.published.add(topic, len(taken))
                answered(None)
            else:
                failure = ClientError(f"E_{verb.decode()}_FAILED", f"{verb.decode()} failed {error}")
                self._say(failure)
                answered(failure)

        def check() -> None:
            code = "E_BAD_TOPIC E_BAD_TOPIC" if verb == b"MPUB" else "E_BAD_TOPIC"
            checked_name(name, code, f"{verb.decode()} topic name")
            self._check_bodies(verb.decode(), taken)
            max_delay = self._broker.options.longest_delay
            if not 0 <= delay <= max_delay:
                raise ClientError("E_INVALID", f"DPUB timeout {delay * 1000:.0f} out of range 0-{max_delay * 1000:.0f}")

        self._take(_Command(verb, name, b"", put, answered), check, now)

    def subscribe(
        self,
        topic: str,
        channel: str,
        deliver: Callable[[list[Message]], None],
        ended: Callable[[], None],
        answered: Answered,
        now: float,
        msg_timeout: float | None = None,
    ) -> IConsumer:
        """IBroker API."""
        options = self._broker.options
        seconds = options.msg_timeout if msg_timeout is None else msg_timeout
        topic_name, channel_name = topic.encode("utf-8", "replace"), channel.encode("utf-8", "replace")

        def frames(data: bytes) -> None:
            deliver(_messages(data))

        inner = Consumer(self._client, self._broker.timers, frames, ended, seconds)
        consumer = ClientConsumer(self._broker, inner, self._say)

        def subscribe() -> None:
            if self._consumer is not None:
                raise ClientError("E_INVALID", "cannot SUB in current state")
            joined = self._access.join(topic, channel, inner, self._now)
            self._consumer = consumer
            self._client.state = 3
            consumer.joined(joined)
            if joined.is_saved:
                answered(None)
            else:
                self._broker.checkpointer.ask(saved)

        def saved(error: Exception | None) -> None:
            failure = None if error is None else ClientError("E_SUB_FAILED", f"SUB failed {error}")
            if failure is not None:
                self._say(failure)
                consumer.leave()
            answered(failure)
            self._changed()

        def check() -> None:
            checked_name(topic_name, "E_BAD_TOPIC", "SUB topic name")
            checked_name(channel_name, "E_BAD_CHANNEL", "SUB channel name")
            if not MIN_MSG_TIMEOUT <= seconds <= options.max_msg_timeout and msg_timeout is not None:
                raise ClientError("E_BAD_BODY", f"SUB msg timeout ({seconds * 1000:.0f}) is invalid")

        self._take(_Command(b"SUB", topic_name, channel_name, subscribe, answered), check, now)
        return consumer

    def leave(self) -> None:
        """IBroker API."""
        if self._end is None:
            self._end = ClientError("E_INVALID", "the connection has ended")
        self._access.leave()
        if self._client_auth is not None:
            self._client_auth.detach()
            self._client_auth = None
        self._queue.clear()
        self._current = self._authorizing = None
        self._welcome = None
        if self._rest is not None:
            self._broker.timers.cancel(self._rest)
            self._rest = None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.leave()

    # -- from the badge

    def _wait(self) -> None:
        self._is_waiting = True

    def _go_on(self) -> None:
        self._is_waiting = False

    def _let_in(self) -> None:
        """The rights came in time and the secret is worth something."""
        if self._welcome is not None:
            self._welcome.take()
        answered, self._authorizing = self._authorizing, None
        if answered is not None:
            answered(None)

    def _refuse(self, error: ClientError, slot: ReplySlot | None = None) -> None:
        """The answer of AUTH is `error`, or what the command waited for is refused, or a right was withdrawn."""
        self._say(error)
        authorizing, self._authorizing = self._authorizing, None
        if slot is not None:
            if self._welcome is not None:
                self._welcome.forget()
            if authorizing is not None:
                authorizing(error)
            return
        current, self._current = self._current, None
        self._end = error
        if current is not None:
            current.answered(error)
        if self._consumer is not None:
            self._consumer.withdraw()

    def _rested(self) -> None:
        """The next turn begins."""
        self._rest = None
        self._run()
        self._changed()

    def _on_rights(self) -> None:
        """An answer of the authorizer was taken note of."""
        self._run()
        self._changed()

    # -- inside

    def _take(self, command: _Command, check: Callable[[], None], now: float) -> None:
        """Carry out a command whose `check` is passed, behind all that wait."""
        self._now = now
        try:
            check()
            if len(self._queue) >= MAX_WAITING:
                raise ClientError("E_INVALID", "too many commands wait")
        except ClientError as error:
            self._say(error)
            command.answered(error)
            return
        self._queue.append(command)
        self._run()

    def _run(self) -> None:
        """Carry out what waits, in order, as long as the rights are known."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while not self.is_waiting:
                command = self._current or (self._queue.popleft() if self._queue else None)
                if command is None:
                    return
                self._attempt(command)
        finally:
            self._is_running = False

    def _attempt(self, command: _Command) -> None:
        self._current = command
        try:
            if self._end is not None:
                raise ClientError(self._end.code, self._end.description)
            client_auth, names = self._client_auth, (command.topic, command.channel)
            if client_auth is not None:
                client_auth.take_parked()
                now = max(self._now, client_auth.now())
                if client_auth.must_wait(command.verb, names, [], command.channel, now):
                    return
            command.do()
        except ClientError as error:
            self._say(error)
            command.answered(error)
        if self._current is command:
            self._current = None

    def _say(self, error: ClientError) -> None:
        """Write the line that V2 writes."""
        self._access.log_refusal(error)

    def _check_bodies(self, verb: str, bodies: list[bytes]) -> None:
        options = self._broker.options
        if verb == "MPUB" or len(bodies) != 1:
            check_count(len(bodies), options.max_body_size)
            check_total(SIZE_BYTES + sum(SIZE_BYTES + len(body) for body in bodies), options.max_body_size)
            for index, body in enumerate(bodies):
                check_size(index, len(body), options.max_msg_size)
        elif not bodies[0]:
            raise ClientError("E_BAD_MESSAGE", f"{verb} invalid message body size 0")
        elif len(bodies[0]) > options.max_msg_size:
            raise ClientError("E_BAD_MESSAGE", f"{verb} message too big {len(bodies[0])} > {options.max_msg_size}")


@implementer(IChannel)
class ClientChannel:
    """The part of a channel that its consumer may see."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.topic = channel.topic.name
        self.name = channel.name

    @property
    def is_paused(self) -> bool:
        """IChannel API."""
        return self._channel.paused

    @property
    def depth(self) -> int:
        """IChannel API."""
        return self._channel.depth


@implementer(IConsumer)
class ClientConsumer:
    """`consumer` of a channel, which it joins once that is allowed."""

    def __init__(self, broker: Broker, consumer: Consumer, say: Callable[[ClientError], None]) -> None:
        self._options = broker.options
        self._consumer = consumer
        self._say = say
        self._messages: MessageAccess | None = None
        self._is_paused = False
        self._is_closed = False

    def joined(self, channel: Channel) -> None:
        """The subscription was allowed."""
        self._messages = MessageAccess(self._consumer, channel, self._options)
        self._consumer.is_blocked = self._is_paused
        if self._is_closed:
            channel.leave(self._consumer)

    @property
    def channel(self) -> IChannel | None:
        """IConsumer API."""
        return None if self._messages is None or self._is_closed else ClientChannel(self._messages.channel)

    def ready(self, count: int) -> None:
        """IConsumer API."""
        messages = self._subscribed()
        try:
            messages.set_ready(count)
        except ClientError as error:
            raise self._refused(error) from None

    def finish(self, message_id: bytes, now: float) -> None:
        """IConsumer API."""
        for error in self._subscribed().finish_all([self._id(b"FIN", message_id)], now):
            raise self._refused(error)

    def requeue(self, message_id: bytes, delay: float, now: float) -> None:
        """IConsumer API."""
        self._raise(self._subscribed().requeue_one(self._id(b"REQ", message_id), delay, now))

    def touch(self, message_id: bytes, now: float) -> None:
        """IConsumer API."""
        self._raise(self._subscribed().touch_one(self._id(b"TOUCH", message_id), now))

    def pause(self) -> None:
        """IConsumer API."""
        self._is_paused = self._consumer.is_blocked = True

    def resume(self) -> None:
        """IConsumer API."""
        if not self._is_closed:
            self._is_paused = self._consumer.is_blocked = False
            if self._messages is not None:
                self._messages.channel.wake()

    def leave(self) -> None:
        """IConsumer API."""
        self._consumer.is_blocked = True
        self._consumer.deliver = _drop
        self._consumer.disconnect = _do_nothing
        if self._messages is not None and not self._is_closed:
            self._messages.channel.leave(self._consumer)
        self._is_closed = True

    def withdraw(self) -> None:
        """The right to it has gone: nothing more is delivered, and the protocol hears of it."""
        ended = self._consumer.disconnect
        self.leave()
        ended()

    def _subscribed(self) -> MessageAccess:
        if self._messages is None or self._is_closed:
            raise self._refused(ClientError("E_INVALID", "not subscribed"))
        return self._messages

    def _id(self, verb: bytes, message_id: bytes) -> bytes:
        try:
            return message_id_of(verb, (message_id,), 1)
        except ClientError as error:
            raise self._refused(error) from None

    def _raise(self, error: ClientError | None) -> None:
        if error is not None:
            raise self._refused(error)

    def _refused(self, error: ClientError) -> ClientError:
        self._say(error)
        return error


def _drop(frames: bytes) -> None:
    """Deliver nothing."""


def _do_nothing() -> None:
    """Callback of a consumer without a connection."""


def _bytes_of(body: bytes) -> bytes:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"a message body must be bytes, not {type(body).__name__}")
    return bytes(body)


def _messages(frames: bytes) -> list[Message]:
    """The fields of a frame as core encodes it (nsqtw.core.segment)."""
    messages: list[Message] = []
    offset, end = 0, len(frames)
    while offset < end:
        stop = offset + 4 + int.from_bytes(frames[offset : offset + 4], "big")
        timestamp_ns = int.from_bytes(frames[offset + _TIMESTAMP_AT : offset + _ATTEMPTS_AT], "big")
        attempts = int.from_bytes(frames[offset + _ATTEMPTS_AT : offset + ID_AT], "big")
        body = frames[offset + BODY_AT : stop]
        messages.append(Message(frames[offset + ID_AT : offset + BODY_AT], timestamp_ns, attempts, body))
        offset = stop
    return messages
