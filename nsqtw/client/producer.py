"""The producer for users, on any event loop: it connects as `producer_policy` asks, and writes once a turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

from nsqtw.client.connection import Notice
from nsqtw.client.consumer import addresses
from nsqtw.client.event_loop import EventLoop, Future, Logger, Outcome, Timer
from nsqtw.client.frames import Frame
from nsqtw.client.link import Link
from nsqtw.client.lookup import host_and_port
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.client.producer_policy import Batching, ProducerPolicy
from nsqtw.client.tls import tls_context
from nsqtw.client.wire import Headers, commands_of
from nsqtw.errors import (
    ClientLibraryError,
    InvalidHeaders,
    InvalidResponse,
    NotConnected,
    OptionError,
    Refused,
    Stopped,
)
from nsqtw.gocompat.values import quoted
from nsqtw.names import is_valid_name

STOP_SECONDS = 30.0
"""Time that a stop waits for answers."""


_is_valid_topic = lru_cache(1024)(is_valid_name)


class BaseProducer(ABC):
    """
    Publishes to the nsqd at `nsqd`, host:port. Of several addresses one is used, and another one when it cannot be
    reached.

    Publishes need not be awaited one by one: they are sent in order, and each has its own result. With `batching`, the
    publishes of a topic are sent together. Options of `ClientOptions` are given by name, or as `options`.

    As a context manager it connects and stops.
    """

    def __init__(
        self,
        nsqd: str | Sequence[str],
        *,
        batching: Batching | None = None,
        options: ClientOptions | None = None,
        **named: Any,
    ) -> None:
        if options is not None and named:
            raise OptionError("options are given by name or as an object, not both")
        self._addresses = addresses(nsqd)
        if not self._addresses:
            raise OptionError("a producer needs the address of an nsqd")
        for address in self._addresses:
            host_and_port(address)
        self.options = options or ClientOptions(**named)
        self._context = tls_context(self.options) if self.options.tls_v1 else None
        self._batching = batching
        self._link: Link | None = None
        self._opening: Link | None = None
        self._next = 0
        self._failures: list[ClientLibraryError] = []
        self._drained: set[str] = set()
        """The addresses of nsqds that drained since the last connection to one that did not."""
        self._starting: list[Any] = []
        self._is_stopping = False
        self._is_ending = False
        """Whether a stop has all answers that it waits for."""
        self._stopped = Outcome()
        self._stop_timer: Timer | None = None
        self._batch_timer: Timer | None = None
        self._loop: EventLoop
        self._log: Logger
        self._policy: ProducerPolicy | None = None

    @abstractmethod
    def _make_loop(self) -> EventLoop:
        """Return the event loop."""

    # -- for users

    def start(self) -> Future[None]:
        """Connect. ConnectFailed when no nsqd can be reached, Stopped after `stop`. A publish connects, too."""
        self._begin()
        future: Any = self._loop.future()
        if self._is_stopping:
            self._loop.reject(future, Stopped())
        elif self._link is not None:
            self._loop.resolve(future)
        else:
            self._starting.append(future)
            self._connect()
        started: Future[None] = future
        return started

    def publish(self, topic: str, body: bytes, *, delay: float = 0.0, headers: Headers | None = None) -> Future[None]:
        """
        Publish a message, which is delivered after `delay` seconds. `headers` need protocol V3: OptionError at once.
        The result comes when nsqd has it: Refused with nsqd's words, NotConnected when the connection was lost before
        the answer, ConnectFailed, Stopped. TypeError at once for a body that is not bytes. To cancel the future takes
        the publish back only if it was not sent yet.
        """
        policy = self._policy or self._begin()
        if type(body) is not bytes:
            body = _as_bytes(body)
        future: Any = self._loop.future()
        if self._is_stopping:
            self._loop.reject(future, Stopped())
        elif not _is_valid_topic(topic):
            # nsqd would close the connection, and other publishes would fail with it.
            self._loop.reject(future, Refused(f"E_BAD_TOPIC PUB topic name {quoted(topic)} is not valid"))
        elif not body:
            self._loop.reject(future, Refused("E_BAD_MESSAGE PUB invalid message body size 0"))
        elif delay or headers:
            if delay < 0:
                self._loop.reject(future, Refused(f"E_INVALID DPUB could not parse timeout {int(delay * 1000)}"))
            else:
                self._send(policy, topic, [body], int(delay * 1000), None if headers is None else [headers], future)
        else:
            policy.publish(topic, body, future)
        published: Future[None] = future
        return published

    def multi_publish(
        self, topic: str, bodies: Sequence[bytes], *, headers: Sequence[Headers] | None = None
    ) -> Future[None]:
        """
        Publish several messages in one command, all or none. `headers` are those of each message. The result and errors
        are as for `publish`.
        """
        published: Future[None] = self._publish_many(topic, bodies, headers, wants_ids=False)
        return published

    def publish_with_ids(
        self, topic: str, bodies: Sequence[bytes], *, headers: Sequence[Headers] | None = None
    ) -> Future[tuple[bytes, ...]]:
        """
        Publish one or more messages as `multi_publish` does. The result is their ids, as `Message.id` has them, in
        their order. OptionError at once without the options protocol="V3" and `message_ids`.
        """
        if not self.options.message_ids:
            raise OptionError("ids of messages are told to producers with the options protocol='V3', message_ids=True")
        future: Future[tuple[bytes, ...]] = self._publish_many(topic, bodies, headers, wants_ids=True)
        return future

    def stop(self, seconds: float = STOP_SECONDS) -> Future[None]:
        """
        Send what is collected, wait up to `seconds` for the answers, and close. Later publishes fail: Stopped. The
        result comes when no connection or timer is left.
        """
        policy = self._begin()
        if not self._is_stopping:
            self._is_stopping = True
            policy.send_batches()
            self._stop_timer = self._loop.call_later(seconds, self._end)
            self._end_if_idle()
        stopped: Future[None] = self._stopped.wait(self._loop)
        return stopped

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # cancelled: nobody else will stop it
            self.stop(0)
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    @property
    def pending_count(self) -> int:
        """Publishes without an answer."""
        return self._policy.pending_count if self._policy is not None else 0

    # -- from links

    def ready(self, link: Link) -> MessageOwner:
        """LinkUser API."""
        self._opening = None
        self._link = link
        self._failures.clear()
        assert self._policy is not None
        if link.connection.is_draining:
            self._drained.add(link.address)
            if self._has_other:
                return _NO_CONSUMER  # `noticed` is called next
        else:
            self._drained.clear()
        self._policy.connected(link.connection)
        starting, self._starting = self._starting, []
        for future in starting:
            self._loop.resolve(future)
        self._end_if_idle()
        return _NO_CONSUMER

    def failed(self, link: Link, error: ClientLibraryError) -> None:
        """LinkUser API."""
        self._opening = None
        self._next += 1
        self._failures.append(error)
        if len(self._failures) < len(self._addresses) and not self._is_ending:
            self._connect()
            return
        self._failures.clear()
        self._not_started(error)
        assert self._policy is not None
        self._policy.connect_failed(error)
        self._end_if_idle()

    def received(self, link: Link, messages: list[Message], frames: list[Frame]) -> None:
        """LinkUser API."""
        assert self._policy is not None
        if messages or not self._policy.answered(frames):
            link.fail(InvalidResponse("the nsqd sent a frame that nothing asked for"))
        self._after_answers()

    def answered_ok(self, link: Link, count: int) -> None:
        """LinkUser API."""
        assert self._policy is not None
        if not self._policy.answered_ok(count):
            link.fail(InvalidResponse("the nsqd sent a frame that nothing asked for"))
        self._after_answers()

    def noticed(self, link: Link, notice: Notice) -> None:
        """LinkUser API. Of a draining nsqd the answers are awaited; what is published now goes to another one."""
        assert self._policy is not None
        if notice is not Notice.DRAINING:
            return
        self._drained.add(link.address)
        self._log.warn(f"({link.address}) {notice.value}")
        if self._has_other:
            self._policy.hold()
            self._leave_drained()

    def lost(self, link: Link, reason: str) -> None:
        """LinkUser API."""
        assert self._policy is not None
        self._link = None
        self._next += 1
        if not self._is_stopping:
            self._log.warn(f"({link.address}) connection lost - {reason}")
        self._policy.lost(NotConnected(f"not connected: {reason}"))
        if (self._policy.is_waiting or self._starting) and not self._is_ending:
            self._connect()
        self._end_if_idle()

    # -- inside

    def _begin(self) -> ProducerPolicy:
        if self._policy is None:
            self._loop = self._make_loop()
            self._log = self._loop.logger("")
            self._policy = ProducerPolicy(
                self._batching,
                commands_of(self.options),
                resolve=self._loop.resolve,
                reject=self._loop.reject,
                is_done=self._loop.is_done,
                clock=self._loop.now,
                changed=self._changed,
                need_connection=self._connect,
                need_timer=self._set_timer,
            )
        return self._policy

    def _publish_many(
        self, topic: str, bodies: Sequence[bytes], headers: Sequence[Headers] | None, *, wants_ids: bool
    ) -> Any:
        """Publish messages in one command. Returns a future."""
        policy = self._begin()
        bodies = [body if type(body) is bytes else _as_bytes(body) for body in bodies]
        future: Any = self._loop.future()
        if self._is_stopping:
            self._loop.reject(future, Stopped())
        elif not is_valid_name(topic):
            self._loop.reject(future, Refused(f"E_BAD_TOPIC MPUB topic name {quoted(topic)} is not valid"))
        elif not bodies:
            self._loop.reject(future, Refused("E_BAD_BODY MPUB invalid message count 0"))
        elif not all(bodies):
            self._loop.reject(future, Refused("E_BAD_MESSAGE MPUB invalid message(0) body size 0"))
        elif headers is not None and len(headers) != len(bodies):
            raise ValueError(f"headers for {len(headers)} of {len(bodies)} messages")
        else:
            self._send(policy, topic, bodies, 0, headers, future, wants_ids=wants_ids)
        return future

    def _send(
        self,
        policy: ProducerPolicy,
        topic: str,
        bodies: Sequence[bytes],
        delay_ms: int,
        headers: Sequence[Headers] | None,
        future: Any,
        *,
        wants_ids: bool = False,
    ) -> None:
        """Send one command. Its answer completes `future`. OptionError for headers over V2."""
        try:
            command = policy.commands.publish(topic, bodies, delay_ms, headers)
        except InvalidHeaders as error:
            self._loop.reject(future, Refused(f"E_BAD_HEADERS {error}"))
            return
        policy.send(topic, command, future, wants_ids=wants_ids)

    def _connect(self) -> None:
        if self._opening is None and self._link is None:
            address = self._addresses[self._next % len(self._addresses)]
            self._opening = Link(self._loop, address, self.options, self._context, self)
            self._opening.open()

    def _changed(self) -> None:
        if self._link is not None:
            self._link.flush_soon()

    def _set_timer(self, due: float) -> None:
        """A batch is to be sent: batches are begun in the order of their times, so an earlier timer is kept."""
        if self._batch_timer is None:
            self._batch_timer = self._loop.call_later(max(0.0, due - self._loop.now()), self._send_due)

    def _send_due(self) -> None:
        assert self._policy is not None
        self._batch_timer = None
        due = self._policy.send_due(self._loop.now())
        if due is not None:
            self._set_timer(due)

    def _not_started(self, error: ClientLibraryError) -> None:
        starting, self._starting = self._starting, []
        for future in starting:
            self._loop.reject(future, error)

    @property
    def _has_other(self) -> bool:
        """Whether there is an nsqd that is not known to drain."""
        return not self._drained.issuperset(self._addresses)

    def _leave_drained(self) -> None:
        """Close the connection to a draining nsqd once it has answered."""
        link, policy = self._link, self._policy
        if link is None or policy is None or link.address not in self._drained:
            return
        if self._has_other and policy.is_answered:
            link.close()

    def _end_if_idle(self) -> None:
        if self._is_stopping and not self.pending_count:
            self._end()

    def _after_answers(self) -> None:
        if self._drained:
            self._leave_drained()
        self._end_if_idle()

    def _end(self) -> None:
        """Close. The publishes without an answer fail."""
        assert self._policy is not None
        if not self._is_ending:
            self._is_ending = True
            for timer in (self._stop_timer, self._batch_timer):
                if timer is not None:
                    timer.cancel()
            self._not_started(Stopped())
            self._policy.connect_failed(Stopped())
            self._policy.lost(Stopped())
            for link in (self._link, self._opening):
                if link is not None:
                    link.close()
        if self._link is None and self._opening is None:
            self._stopped.succeed(self._loop, None)


def _as_bytes(body: object) -> bytes:
    """Copy a bytearray or memoryview, which may change before it is sent. TypeError for anything else."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise TypeError(f"the body of a message must be bytes, not {type(body).__name__}")


class _NoConsumer:
    """The owner of messages that a producer never gets."""

    address = ""

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None: ...
    def touch(self, message: Message) -> None: ...


_NO_CONSUMER = _NoConsumer()
