"""
`IBroker` for one connection: its identity and rights, its publishes and its subscriptions.

Performance: called once per publish.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
from zope.interface import classImplements

from nsqtw import NSQ_VERSION
from nsqtw.core.broker import Broker
from nsqtw.core.client import Client
from nsqtw.core.topic import Topic
from nsqtw.errors import ClientError
from nsqtw.interfaces import MAX_CLIENT_TEXT, Answered, Assigned, BytesLike, IBroker, IConsumer, IReceiver
from nsqtw.protocols.client import RESTS, CommandClient, new_client, publish_failed
from nsqtw.protocols.guarded.commands import Call, CommandQueue, NotifyingAuthorizations
from nsqtw.protocols.guarded.consumer import MAX_RANGE, ClientConsumer
from nsqtw.protocols.guarded.messages import Message
from nsqtw.protocols.guarded.publish import (
    FunctionAnswer,
    Headers,
    Publish,
    begin,
    bytes_of,
    check_bodies,
    checked_delays,
    checked_headers,
    put_runs,
)
from nsqtw.protocols.guarded.subscribe import Callbacks, Subscribe, check_subscription
from nsqtw.protocols.mpub import SIZE_BYTES, equal_messages_in, messages_in
from nsqtw.protocols.parameters import checked_topic
from nsqtw.protocols.replies import Replies, ReplySlot
from nsqtw.protocols.session import PublishAnswer, SessionBroker
from nsqtw.rights import MAX_SECRET_BYTES
from nsqtw.upgrades import Secured

MAX_SUBSCRIPTIONS: Final = 1000
"""Subscriptions of one connection."""
MAX_UNSTORED_BYTES: Final = 8 * 1024 * 1024
"""Publishes without an answer, in bytes. With more, nothing is read from the connection."""
_NO_DELAY: Final = (0,)


class ClientBroker(SessionBroker):
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
        client = new_client(broker, remote_address, protocol, now, secured)
        self._broker_client = CommandClient(broker, client, self._wait, self._go_on, self._count_effects)
        super().__init__(self._broker_client.idle.record)
        self._broker = broker
        self._options = broker.options
        self._topics = broker.topics
        self._changed = changed
        self._client = client
        self.published = client.published
        """The counts of its publishes."""
        self._commands = CommandQueue(self._broker_client.log_refusal, now)
        if broker.authorizations is not None:
            authorizations = NotifyingAuthorizations(broker.authorizations, self._on_rights)
            self._commands.ask(self._broker_client.need_rights(authorizations, self._refuse))
        self._welcome: Replies | None = Replies(self._let_in, _do_nothing)
        self._authorizing: Answered | None = None
        self._timers: set[Call] = set()
        self._consumers: dict[ClientConsumer, tuple[str, str]] = {}
        self._has_subscribed = False
        """Whether `subscribe` was called, which can be done once."""
        self._unstored_bytes = 0
        self._max_msg_size = int(broker.options.max_msg_size)
        self._max_body_size = int(broker.options.max_body_size)
        self._checked_topic: str | None = None
        """The name that was checked last: most publishers publish to one topic."""
        self._last_topic: Topic | None = None
        """The topic that was published to last."""

    # -- IBroker: about the connection

    @property
    def identity(self) -> str:
        """IBroker API."""
        return self._client.auth_identity

    @property
    def needs_authorization(self) -> bool:
        """IBroker API."""
        return self._broker_client.auth is not None and not self._client.authed

    @property
    def is_draining(self) -> bool:
        """IBroker API."""
        return not self._broker.is_taking_publishes

    @property
    def version(self) -> str:
        """IBroker API."""
        return NSQ_VERSION

    @property
    def max_msg_size(self) -> int:
        """IBroker API."""
        return self._max_msg_size

    @property
    def max_body_size(self) -> int:
        """IBroker API."""
        return self._max_body_size

    @property
    def max_ready_count(self) -> int:
        """IBroker API."""
        return int(self._options.max_rdy_count)

    @property
    def max_subscriptions(self) -> int:
        """IBroker API."""
        return MAX_SUBSCRIPTIONS

    @property
    def max_range(self) -> int:
        """IBroker API."""
        return MAX_RANGE

    @property
    def max_delay(self) -> float:
        """IBroker API."""
        return float(self._options.longest_delay)

    @property
    def max_requeue_delay(self) -> float:
        """IBroker API."""
        return float(self._options.max_req_timeout)

    @property
    def msg_timeout(self) -> float:
        """IBroker API."""
        return float(self._options.msg_timeout)

    @property
    def max_msg_timeout(self) -> float:
        """IBroker API."""
        return float(self._options.max_msg_timeout)

    @property
    def max_heartbeat_interval(self) -> float:
        """IBroker API."""
        return float(self._options.max_heartbeat_interval)

    @property
    def body_timeout(self) -> float:
        """IBroker API."""
        return float(self._options.body_timeout)

    @property
    def min_body_rate(self) -> int:
        """IBroker API."""
        return int(self._options.min_body_rate)

    @property
    def exceeded(self) -> str:
        """IBroker API."""
        return self._broker_client.refused

    def introduce(self, client_id: str, hostname: str, user_agent: str) -> None:
        """IBroker API."""
        client = self._client
        client.client_id = client_id[:MAX_CLIENT_TEXT] or client.client_id
        client.hostname = hostname[:MAX_CLIENT_TEXT] or client.hostname
        client.user_agent = user_agent[:MAX_CLIENT_TEXT]

    def refused(self, error: ClientError) -> None:
        """IBroker API."""
        self._broker_client.log_refusal(error)

    def schedule(self, due: float, call: Callable[[float], None]) -> Callable[[], None]:
        """IBroker API."""

        def called(now: float) -> None:
            self._timers.discard(timer)
            call(now)
            self._changed()

        def cancel() -> None:
            self._timers.discard(timer)
            self._broker.timers.cancel(timer)

        timer = Call(called)
        self._timers.add(timer)
        self._broker.timers.schedule(due, timer)
        return cancel

    def on_drain(self, told: Callable[[], None]) -> None:
        """IBroker API."""

        def tell() -> None:
            told()
            self._changed()

        self._broker_client.on_drain(tell)

    def authorize(self, secret: BytesLike, answered: Answered, now: float) -> None:
        """IBroker API."""
        self._commands.now = now
        try:
            if self._commands.end is not None:
                raise ClientError(self._commands.end.code, self._commands.end.description)
            client_auth = self._broker_client.auth
            if client_auth is None:
                raise ClientError("E_AUTH_DISABLED", "AUTH disabled")
            if self._authorizing is not None:
                raise ClientError("E_INVALID", "AUTH already set")
            if len(secret) > MAX_SECRET_BYTES:
                raise ClientError("E_BAD_BODY", f"AUTH body too big {len(secret)} > {MAX_SECRET_BYTES}")
            assert self._welcome is not None, "there is one until the connection ends"
            self._authorizing = answered
            client_auth.show(bytes(secret), self._welcome.reserve)
        except ClientError as error:
            if self._authorizing is answered:
                self._authorizing = None
            self.refused(error)
            answered(error)

    def leave(self) -> None:
        """IBroker API."""
        self._commands.close()
        self._broker_client.leave()
        self._authorizing = None
        self._welcome = None
        for timer in self._timers:
            self._broker.timers.cancel(timer)
        self._timers.clear()
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers:
            consumer.leave()

    # -- IBroker: publishes

    def publish(
        self,
        topic: str,
        bodies: Sequence[BytesLike],
        delay: float,
        answered: Answered | PublishAnswer,
        now: float,
        headers: Sequence[Headers] | None = None,
        delays: Sequence[float] | None = None,
        each: bool = False,
        assigned: Assigned | None = None,
    ) -> None:
        """IBroker API."""
        commands = self._commands
        answer = answered if isinstance(answered, PublishAnswer) else FunctionAnswer(answered)
        if (
            isinstance(bodies, list)
            and len(bodies) == 1
            and isinstance(body := bodies[0], bytes)
            and 0 < len(body) <= self._max_msg_size
            and headers is None
            and delays is None
            and not delay
            and (known := self._known_topic(topic)) is not None
        ):  # most publishes; what follows finds the same
            begin(answer, self, b"PUB", topic, 1, assigned)
            commands.now = now
            known.put(bodies, 0, answer, None, "", assigned)
            return
        taken = bytes_of(bodies)
        verb = b"DPUB" if delay else b"PUB" if each or len(taken) == 1 else b"MPUB"
        delays_ms: Sequence[int] = _NO_DELAY
        encoded: list[bytes] | None = None
        try:
            self._check_topic(verb, topic)
            check_bodies(verb, taken, self._options)
            if headers is not None:
                encoded = checked_headers(verb, headers, len(taken))
            if delay or delays is not None:
                delays_ms = checked_delays(delay, delays, len(taken), self.max_delay)
            begin(answer, self, verb, topic, len(taken), assigned)
            if commands.is_idle:
                commands.now = now
                self.put(answer, taken, delays_ms, encoded)
            else:
                commands.take(Publish(self.put, taken, delays_ms, encoded, answer), now)
        except ClientError as error:
            self.refused(error)
            answer.answer(error)

    def publish_packed(
        self,
        topic: str,
        packed: BytesLike,
        start: int,
        stop: int,
        answered: Answered | PublishAnswer,
        now: float,
        assigned: Assigned | None = None,
    ) -> None:
        """IBroker API."""
        if not isinstance(packed, bytes):
            packed = bytes(packed)
        bodies = equal_messages_in(packed, start, stop, self._max_msg_size)
        if (
            bodies is not None
            and len(bodies) > 1
            and SIZE_BYTES + stop - start <= self._max_body_size
            and (known := self._known_topic(topic)) is not None
        ):
            answer = answered if isinstance(answered, PublishAnswer) else FunctionAnswer(answered)
            begin(answer, self, b"MPUB", topic, len(bodies), assigned)
            self._commands.now = now
            known.put(bodies, 0, answer, None, "", assigned)
            return
        if bodies is None:
            bodies = messages_in(packed, start, stop)
        self.publish(topic, bodies, 0.0, answered, now, assigned=assigned)

    def committed(self, answer: PublishAnswer, error: Exception | None) -> None:
        """SessionBroker API."""
        if answer.held_bytes:
            self.hold_bytes(-answer.held_bytes)
        if error is None:
            self.published.add(answer.topic, answer.count)
            answer.answer(None)
        else:
            failure = publish_failed(answer.verb.decode(), error)
            self.refused(failure)
            answer.answer(failure)

    def _known_topic(self, name: str) -> Topic | None:
        """Return the topic `name` if messages can be put into it at once; None if there is something to do before."""
        topic = self._last_topic
        if topic is None or topic.exiting or topic.name != name:
            topic = self._last_topic = self._topics.get(name)
        return None if topic is None or topic.commits_async or not self._commands.is_idle else topic

    def _check_topic(self, verb: bytes, topic: str) -> None:
        if topic != self._checked_topic:
            checked_topic(verb, topic.encode("utf-8", "replace"))
            self._checked_topic = topic

    def put(
        self, answer: PublishAnswer, bodies: list[bytes], delays: Sequence[int], headers: list[bytes] | None
    ) -> None:
        """An allowed publish. ClientError."""
        topic = self._topics.get(answer.topic)
        if topic is None:
            topic = self._broker_client.new_topic(answer.verb.decode(), answer.topic)
        if topic.bounds is not None and len(bodies) > 1 and (parts := answer.parts()):
            # A bound may refuse some of these publishes.
            for index, (part, assigned) in enumerate(parts):
                begin(part, self, answer.verb, answer.topic, 1, assigned)
                self.put(part, bodies[index : index + 1], delays, headers and headers[index : index + 1])
            return
        if topic.commits_async:
            answer.held_bytes = sum(map(len, bodies)) + sum(map(len, headers or ()))
            self.hold_bytes(answer.held_bytes)
        if len(delays) == 1:
            topic.put(bodies, delays[0], answer, headers, "", answer.assigned)
        else:
            put_runs(topic, bodies, delays, headers, answer)

    def hold_bytes(self, more: int) -> None:
        """So many bytes more are not stored yet."""
        self._unstored_bytes += more
        self.is_waiting = self._commands.is_waiting or self._unstored_bytes > MAX_UNSTORED_BYTES

    # -- IBroker: subscriptions

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
        return self._consume(topic, channel, Callbacks(deliver, ended, answered), now, msg_timeout, once=True)

    def consume(
        self, topic: str, channel: str, receiver: IReceiver, now: float, msg_timeout: float | None = None
    ) -> IConsumer:
        """IBroker API."""
        return self._consume(topic, channel, receiver, now, msg_timeout, once=False)

    def join(self, subscribe: Subscribe) -> None:
        """An allowed subscription. ClientError."""
        self._leave_closed()
        if subscribe.once and self._has_subscribed:
            raise ClientError("E_INVALID", "cannot SUB in current state")
        if len(self._consumers) >= MAX_SUBSCRIPTIONS:
            raise ClientError("E_SUB_FAILED", f"SUB failed a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        consumer = subscribe.consumer
        joined = self._broker_client.join(subscribe.topic, subscribe.channel, consumer.inner, self._commands.now)
        self._has_subscribed = True
        self._consumers[consumer] = (subscribe.topic, subscribe.channel)
        consumer.joined(joined)

        def saved(error: ClientError | None) -> None:
            if error is not None:
                self.refused(error)
            consumer.tell_subscribed(error)
            if error is not None:
                consumer.leave()
            self._changed()

        self._broker_client.when_saved(joined, saved)

    def _consume(
        self, topic: str, channel: str, receiver: IReceiver, now: float, msg_timeout: float | None, *, once: bool
    ) -> ClientConsumer:
        options = self._options
        seconds = options.msg_timeout if msg_timeout is None else msg_timeout
        consumer = ClientConsumer(self._broker, self._new_client(), receiver, seconds, self._broker_client.log_refusal)
        try:
            check_subscription(topic, channel, msg_timeout, options)
            self._commands.take(Subscribe(self.join, topic, channel, consumer, once=once), now)
        except ClientError as error:
            self.refused(error)
            consumer.tell_subscribed(error)
        return consumer

    def _count_effects(self) -> int:
        """Return how many messages of the connection were published, finished or requeued."""
        counts = [
            consumer.inner.client.finish_count + consumer.inner.client.requeue_count for consumer in self._consumers
        ]
        return sum(counts) + sum(self.published.by_topic().values())

    def _new_client(self) -> Client:
        """
        Return the client of another subscription, for the statistics of its channel: the first one is the connection's
        own.
        """
        if not self._consumers:
            return self._client
        client: Client = attrs.evolve(
            self._client, message_count=0, finish_count=0, requeue_count=0, ready_count=0, in_flight=()
        )
        return client

    def _leave_closed(self) -> None:
        """Forget the subscriptions that have ended."""
        for consumer, (topic, channel) in list(self._consumers.items()):
            if consumer.is_closed:
                del self._consumers[consumer]
                client_auth = self._broker_client.auth
                if client_auth is not None and (topic, channel) not in self._consumers.values():
                    client_auth.end_subscription(topic.encode(), channel.encode())

    # -- from the client and its rights

    def _wait(self, reason: int) -> None:
        self._commands.wait(reason)
        self.hold_bytes(0)

    def _go_on(self, reason: int, now: float) -> None:
        self._commands.go_on(reason)
        self.hold_bytes(0)
        if reason == RESTS:
            self._commands.run()
            self._changed()

    def _let_in(self) -> None:
        """The rights came in time and the secret is worth something."""
        if self._welcome is not None:
            self._welcome.take()
        answered, self._authorizing = self._authorizing, None
        if answered is not None:
            answered(None)

    def _refuse(self, error: ClientError, slot: ReplySlot | None = None) -> None:
        """The answer of AUTH is `error`, or what the command waited for is refused, or a right was withdrawn."""
        self.refused(error)
        authorizing, self._authorizing = self._authorizing, None
        if slot is not None:
            if self._welcome is not None:
                self._welcome.forget()
            if authorizing is not None:
                authorizing(error)
            return
        self._commands.refuse_current(error)
        for consumer in list(self._consumers):
            consumer.withdraw(error)

    def _on_rights(self) -> None:
        """An answer of the authorizer was taken note of."""
        self._commands.run()
        self._changed()


def _do_nothing() -> None:
    """The end of the welcome, which has none."""


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(ClientBroker, IBroker)
