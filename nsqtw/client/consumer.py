"""
The consumer for users, on any event loop: it carries out the actions of `consumer_policy` and runs handlers.

Theory of operation. Messages of a chunk go into a queue. With a handler, `concurrency` coroutines take messages from
it; without one, `async for` does. A coroutine goes on until the queue is empty, so a handler that does not wait costs
no turn of the loop; after SLICE_SECONDS it lets others run. The responses of a turn are written together.

Performance: a step for each message; writes and timers once a turn.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from time import monotonic
from typing import Any, Self

from nsqtw.client.connection import Notice
from nsqtw.client.consumer_policy import (
    STOP_SECONDS,
    Connect,
    ConsumerConnection,
    ConsumerPolicy,
    Disconnect,
    Finished,
    OnProblem,
    Phase,
    Query,
)
from nsqtw.client.event_loop import EventLoop, Future, Logger, Outcome, Timer
from nsqtw.client.frames import Frame
from nsqtw.client.http import HttpQuery
from nsqtw.client.link import Link
from nsqtw.client.lookup import ACCEPT, Lookup, answer_of, host_and_port, lookup_url, producers_of
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.client.tls import tls_context
from nsqtw.errors import ClientLibraryError, InvalidName, OptionError, Stopped
from nsqtw.names import is_valid_name

Handler = Callable[[Message], Awaitable[object] | None]
"""Handles a message: a function, a coroutine function, or a function that returns a Deferred or future."""

SLICE_SECONDS = 0.02
"""
Time that handlers which do not wait may take before the event loop continues: responses are written, and heartbeats
answered.
"""
_numbers = count(1)
"""The number of a consumer in its log lines."""
_MOST_BETWEEN_LOOKS = 16
"""Messages between two looks at the clock while handlers are quick. After a slice that took too long it is one."""


def addresses(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


class BaseConsumer(ABC):
    """
    A consumer of `channel` of `topic`.

    `nsqd` and `lookupd` are one or more addresses, host:port: of nsqds to connect to, or of nsqlookupds (HTTP) to ask
    for them. With a `handler`, each message is finished when the handler returns and requeued, with backoff, when it
    raises; up to `concurrency` handlers run at a time. Without one, iterate over the consumer and respond to each
    message. `auto_touch` keeps messages from timing out while they wait for a response. `on_give_up` is told of a
    message that is finished without its handler because it had `max_attempts`; `on_problem` is told of an address and
    an error after which the consumer tries again. Options of `ClientOptions` are given by name, or as `options`.

    As a context manager it starts and stops.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        nsqd: str | Sequence[str] = (),
        lookupd: str | Sequence[str] = (),
        concurrency: int = 1,
        auto_touch: bool = False,
        on_give_up: Callable[[Message], None] | None = None,
        on_problem: OnProblem | None = None,
        options: ClientOptions | None = None,
        **named: Any,
    ) -> None:
        for name in (topic, channel):
            if not is_valid_name(name):
                raise InvalidName
        if options is not None and named:
            raise OptionError("options are given by name or as an object, not both")
        self.topic, self.channel = topic, channel
        self.options = options or ClientOptions(**named)
        self._nsqds = addresses(nsqd)
        for address in self._nsqds:
            host_and_port(address)
        self._urls = [lookup_url(address, topic) for address in addresses(lookupd)]
        if not self._nsqds and not self._urls:
            raise OptionError("a consumer needs the address of an nsqd or an nsqlookupd")
        self._context = tls_context(self.options) if self.options.tls_v1 or self.options.tls_root_ca_file else None
        self._handler = handler
        self._concurrency = concurrency
        self._auto_touch = auto_touch
        self._on_give_up = on_give_up
        self._on_problem = on_problem
        self._queue: deque[Message] = deque()
        self._waiters: deque[Any] = deque()
        self._untried = set(self._nsqds)
        """The addresses of which `start` does not know yet whether they can be connected to."""
        self._opening: set[Link] = set()
        self._links: dict[ConsumerConnection, Link] = {}
        self._owners: dict[Link, ConsumerConnection] = {}
        self._queries: dict[HttpQuery, Any] = {}
        self._workers: list[Any] = []
        self._worker_count = 0
        self._timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._is_scheduled = False
        self._requeued = 0
        self._is_set_up = self._is_begun = self._needs_all = False
        self._is_ending = False
        """Whether the policy is done, and what still runs here is waited for."""
        self._deadline = 0.0
        """When a stop no longer waits for handlers."""
        self._start = Outcome()
        self._stop = Outcome()
        self._loop: EventLoop
        self._log: Logger
        self._policy: ConsumerPolicy

    @abstractmethod
    def _make_loop(self) -> EventLoop:
        """Return the event loop."""

    # -- for users

    def start(self, *, needs_all: bool = False) -> Future[None]:
        """
        Connect. The result comes with the first connection to an nsqd of `nsqd`, with `needs_all` with the last one;
        ConnectFailed when none can be opened (with `needs_all`: when one cannot); then the consumer is stopped. Without
        `nsqd` the result comes at once. Stopped after `stop`.
        """
        self._begin(needs_all)
        future: Future[None] = self._loop.spawn(self._started())
        return future

    def stop(self, seconds: float = STOP_SECONDS) -> Future[int]:
        """
        Get no more messages, wait up to `seconds` for responses to those that handlers have and for the handlers
        themselves, which are then cancelled, and close. Messages that no handler has are requeued at once. The result,
        the number of requeued messages, comes when no connection, timer or coroutine is left.
        """
        self._set_up()
        if self._policy.phase is Phase.RUNNING:
            self._deadline = self._loop.now() + seconds
            self._policy.stop(self._loop.now(), seconds)
            for message in self._queue:
                self._requeue(message)
            self._queue.clear()
            self._wake(len(self._waiters))
            self._carry_on()
        future: Future[int] = self._stop.wait(self._loop)
        return future

    def wait_stopped(self) -> Future[int]:
        """Wait until the consumer is stopped. The result is that of `stop`."""
        self._set_up()
        future: Future[int] = self._stop.wait(self._loop)
        return future

    async def run(self) -> None:
        """Start, and wait until the consumer is stopped."""
        await self.start()
        await self._stop.wait(self._loop)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # cancelled: nobody else will stop it
            self.stop(0)
            raise
        return self

    async def __aexit__(self, kind: object, *exception: object) -> None:
        # What an iteration left behind at an error has no response, and will get none.
        await self.stop(0 if kind is not None and self._handler is None else STOP_SECONDS)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """Return the next message. The iteration ends when the consumer stops."""
        if self._handler is not None:
            raise Stopped("a consumer with a handler cannot be iterated over")
        self._begin(needs_all=False)
        while True:
            while self._queue:
                message = self._queue.popleft()
                if not message.has_responded:
                    return message
            if self._policy.phase is not Phase.RUNNING:
                raise StopAsyncIteration
            await self._wait()

    def change_max_in_flight(self, count: int) -> None:
        """Set max_in_flight; 0 pauses the consumer."""
        self._set_up()
        self._policy.change_max_in_flight(count, self._loop.now())
        self._carry_on()

    @property
    def is_starved(self) -> bool:
        """Whether an nsqd waits for responses before it sends more messages."""
        return self._is_set_up and self._policy.is_starved

    @property
    def in_flight(self) -> int:
        """Messages without a response."""
        return self._policy.in_flight if self._is_set_up else 0

    @property
    def stats(self) -> dict[str, int]:
        """Counts of messages, and of connections."""
        self._set_up()
        policy = self._policy
        return {
            "received": policy.received_count,
            "finished": policy.finished_count,
            "requeued": policy.requeued_count,
            "connections": len(policy.connections),
        }

    # -- from links

    def ready(self, link: Link) -> MessageOwner:
        """LinkUser API."""
        self._opening.discard(link)
        made = self._policy.connected(link.connection, self._loop.now())
        self._links[made], self._owners[link] = link, made
        self._opened(link.address, None)
        self._carry_on()
        return made

    def failed(self, link: Link, error: ClientLibraryError) -> None:
        """LinkUser API."""
        self._opening.discard(link)
        if not self._is_ending:
            self._policy.connect_failed(link.address, error, self._loop.now())
            self._opened(link.address, error)
        self._carry_on()

    def received(self, link: Link, messages: list[Message], frames: list[Frame]) -> None:
        """LinkUser API."""
        messages = self._policy.received(self._owners[link], messages, frames, self._loop.now())
        if self._policy.phase is not Phase.RUNNING:
            for message in messages:
                self._requeue(message)
        else:
            self._queue.extend(messages)
            self._wake(len(messages))
        self._carry_on()

    def answered_ok(self, link: Link, count: int) -> None:
        """LinkUser API. Only SUB is answered so."""
        self._policy.subscribed(self._owners[link])

    def noticed(self, link: Link, notice: Notice) -> None:
        """LinkUser API."""
        self._log.info(f"({link.address}) {notice.value}")

    def lost(self, link: Link, reason: str) -> None:
        """LinkUser API."""
        owner = self._owners.pop(link)
        del self._links[owner]
        self._policy.lost(owner, reason, self._loop.now())
        self._carry_on()

    # -- inside

    def _set_up(self) -> None:
        """Take the event loop, once."""
        if self._is_set_up:
            return
        self._is_set_up = True
        self._loop = loop = self._make_loop()
        self._log = loop.logger(f"{next(_numbers):>3} [{self.topic}/{self.channel}] ")
        self._policy = ConsumerPolicy(
            self.topic,
            self.channel,
            self.options,
            nsqds=self._nsqds,
            lookup=Lookup(self._urls) if self._urls else None,
            changed=self._changed,
            clock=loop.now,
            log=self._log,
            random=random.Random(),
            auto_touch=self._auto_touch,
            on_give_up=self._on_give_up,
            on_problem=self._on_problem,
        )

    def _begin(self, needs_all: bool) -> None:
        """Connect, once, and not after a stop."""
        self._set_up()
        if self._is_begun or self._policy.phase is not Phase.RUNNING:
            return
        self._is_begun, self._needs_all = True, needs_all
        loop = self._loop
        if self._handler is not None:
            self._worker_count = self._concurrency
            self._workers = [loop.spawn(self._worker(self._handler)) for _ in range(self._concurrency)]
        self._policy.start(loop.now())
        if not self._nsqds:
            self._start.succeed(loop, None)
        self._carry_on()

    async def _started(self) -> None:
        """Wait for the outcome of the start."""
        try:
            await self._start.wait(self._loop)
        except ClientLibraryError:
            await self.stop(0)
            raise

    def _opened(self, address: str, error: ClientLibraryError | None) -> None:
        """A connection was opened, or not: `start` may have its result."""
        if address not in self._nsqds:  # found through an nsqlookupd
            return
        self._untried.discard(address)
        if error is None and (not self._needs_all or not self._untried):
            self._start.succeed(self._loop, None)
        elif error is not None and (self._needs_all or not self._untried):
            self._start.fail(self._loop, error)

    def _changed(self, connection: ConsumerConnection) -> None:
        """A connection has commands to write: do that at the end of the turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        for owner, link in self._links.items():
            if owner.is_dirty:
                owner.is_dirty = False
                link.flush()
        self._carry_on()

    def _carry_on(self) -> None:
        """Carry out the actions of the policy, and set the timer."""
        for action in self._policy.take_actions():
            if isinstance(action, Connect):
                link = Link(self._loop, action.address, self.options, self._context, self)
                self._opening.add(link)
                link.open()
            elif isinstance(action, Disconnect):
                if action.connection in self._links:
                    self._links[action.connection].close()
            elif isinstance(action, Query):
                self._start_query(action.url)
            elif isinstance(action, Finished):
                self._end(action)
        if self._policy.timers.has_changed:
            self._policy.timers.has_changed = False
            self._set_timer()
        self._conclude()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._policy.timers.next
        if due is not None:
            self._timer = self._loop.call_later(max(0.0, due - self._loop.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._policy.timers.has_changed = True
        self._policy.on_timer(self._loop.now())
        self._carry_on()

    def _end(self, action: Finished) -> None:
        """The policy is done: end what runs here, and let handlers finish until the deadline."""
        self._is_ending = True
        self._requeued += action.requeued
        for link in list(self._opening):
            link.close()
        for query in list(self._queries.values()):
            if query is not None:
                self._loop.cancel(query)
        self._wake(len(self._waiters))
        self._start.fail(self._loop, Stopped())
        left = self._deadline - self._loop.now()
        if self._worker_count and left > 0:
            self._deadline_timer = self._loop.call_later(left, self._cancel_workers)
        else:
            self._cancel_workers()

    def _cancel_workers(self) -> None:
        for worker in self._workers:
            self._loop.cancel(worker)
        self._worker_count = 0
        self._conclude()

    def _conclude(self) -> None:
        """The stop has its result when nothing is left."""
        if not self._is_ending or self._opening or self._links or self._queries or self._worker_count:
            return
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        if self._requeued and not self._stop.is_known:
            self._log.warn(f"stopped, and requeued {self._requeued} messages")
        self._stop.succeed(self._loop, self._requeued)

    def _requeue(self, message: Message) -> None:
        if not message.has_responded:
            message.requeue(0, backoff=False)
            self._requeued += 1

    def _start_query(self, url: str) -> None:
        options = self.options
        headers = {"Accept": ACCEPT, "User-Agent": options.user_agent}
        if options.auth_secret and options.skip_lookupd_authorization:
            headers["Authorization"] = f"Bearer {options.auth_secret}"
        query = HttpQuery(self._loop, url, headers=headers, context=self._context)
        self._queries[query] = None
        running = self._loop.spawn(self._ask(query, url))
        if query in self._queries:
            self._queries[query] = running

    async def _ask(self, query: HttpQuery, url: str) -> None:
        """Ask an nsqlookupd, and tell the policy of the answer."""
        timeout = self.options.lookupd_poll_timeout
        try:
            answer = await query.run(timeout, timeout)
            content_type = answer.headers.get("x-nsq-content-type", "")
            found = producers_of(answer_of(answer.status, content_type, answer.body))
        except ClientLibraryError as error:
            self._policy.query_failed(url, error, self._loop.now())
        else:
            for text in found.refused:
                self._policy.left_out(url, text)
            self._policy.found(found.addresses, self._loop.now())
        finally:
            del self._queries[query]
            self._carry_on()

    async def _wait(self) -> None:
        """Wait for messages, or for the end."""
        waiter = self._loop.future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            # On asyncio this can be after the wake-up: then it is another one's.
            self._wake(1 if self._queue else 0)
            raise

    def _wake(self, count: int) -> None:
        """
        Wake so many of those that wait now. Cancelled ones do not count. Twisted continues a coroutine inside
        `resolve`: one that waits again has seen the messages, and is not woken twice.
        """
        for _ in range(len(self._waiters)):
            if not count or not self._waiters:
                return
            count -= self._loop.resolve(self._waiters.popleft())

    async def _worker(self, handler: Handler) -> None:
        try:
            await self._work(handler)
        finally:
            self._worker_count = max(0, self._worker_count - 1)
            self._conclude()

    async def _work(self, handler: Handler) -> None:
        """Handle messages, one after the other, until the consumer stops."""
        loop, queue = self._loop, self._queue
        left = step = 1
        began = monotonic()
        while True:
            if not queue:
                if self._policy.phase is not Phase.RUNNING:
                    return
                await self._wait()
                began = monotonic()
                continue
            message = queue.popleft()
            if message.has_responded:  # its connection is lost
                continue
            try:
                handled = handler(message)
                if handled is not None and hasattr(handled, "__await__"):
                    await handled
            except BaseException as error:
                if loop.must_end(error):
                    self._requeue(message)
                    raise
                self._failed(message, error)
            else:
                if not (message.has_responded or message.responds_itself):
                    message.finish()
            left -= 1
            if not left:
                if monotonic() - began > SLICE_SECONDS:
                    await loop.next_turn()
                    began, step = monotonic(), 1
                else:
                    step = min(2 * step, _MOST_BETWEEN_LOOKS)
                left = step

    def _failed(self, message: Message, error: BaseException) -> None:
        """A handler raised, or what it waited for was cancelled."""
        text = message.id.decode("latin-1")
        self._log.error(f"Handler returned error ({error!r}) for msg {text}")
        if message.has_responded or message.responds_itself:
            return
        if self._policy.phase is Phase.RUNNING:
            message.requeue(reason=repr(error))
        else:
            self._requeue(message)
