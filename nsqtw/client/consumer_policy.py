"""
A consumer without IO: which nsqds it connects to, how many messages each may send, and what happens to a message.

Theory of operation. The edge reports events (`connected`, `received`, `lost`, `found`, `on_timer`) with the time, and
afterwards carries out `take_actions`. Commands are put into the connections' buffers; `changed` tells the edge once
that a connection has something to write. All points in time are in `timers`, for which the edge needs one timer.

A consumer that stops sends CLS and waits for CLOSE_WAIT and for the responses to its messages on each connection, so
the last FIN is written and read before the connection is closed.

Performance: `received` is called once a chunk, `finish` once a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

from nsqtw.client.backoff import Backoff, Signal, Step
from nsqtw.client.frames import Frame
from nsqtw.client.lookup import Lookup
from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions
from nsqtw.client.ready import RETRY_SECONDS, ReadyConnection, ReadyDistribution
from nsqtw.client.timers import Timers
from nsqtw.client.wire import WireConnection, commands_of
from nsqtw.errors import ClientLibraryError, LookupFailed, NotConnected, Refused

STOP_SECONDS = 30.0
"""Time that a stop waits for responses. Then the remaining messages are requeued."""
_RETRY_SECONDS = 0.25
"""Time until a lost connection is opened again. It doubles with each failure."""
_MAX_DOUBLINGS = 20
_PAUSE_RETRY_SECONDS = 1.0
_CLOSE_WAIT = b"CLOSE_WAIT"
_OK = b"OK"


class Connect(NamedTuple):
    """Open a connection to an nsqd; then call `ConsumerPolicy.connected` or `ConsumerPolicy.connect_failed`."""

    address: str


class Disconnect(NamedTuple):
    """Write what is buffered and close a connection; then call `ConsumerPolicy.lost`."""

    connection: ConsumerConnection


class Query(NamedTuple):
    """Ask an nsqlookupd; then call `ConsumerPolicy.found` or `ConsumerPolicy.query_failed`."""

    url: str


class Finished(NamedTuple):
    """The consumer is stopped. `requeued` messages were given back because nothing responded to them in time."""

    requeued: int


Action = Connect | Disconnect | Query | Finished

OnProblem = Callable[[str, ClientLibraryError], None]
"""
Is told of the address of an nsqd or the URL of an nsqlookupd, and of a problem with it after which the consumer tries
again: no connection (ConnectFailed), a lost one (NotConnected), an error frame (Refused), no answer (LookupFailed).
"""


class Log(Protocol):
    """The lines for the operator."""

    def info(self, text: str) -> None:
        """Log an expected event."""

    def warn(self, text: str) -> None:
        """Log a problem that the consumer handles."""


class Phase(Enum):
    """The states of a consumer."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ConsumerConnection:
    """The state of a consumer's connection, and the owner of the messages it delivered."""

    def __init__(self, policy: ConsumerPolicy, connection: WireConnection, now: float) -> None:
        self._policy = policy
        self._commands = policy.commands
        self.connection = connection
        self.address = connection.address
        self.rdy = self.last_rdy = 0
        self.rdy_since = now
        self.last_message = now
        self.is_closing = False
        """Whether nsqd sends no more messages."""
        self.has_retry = False
        self.is_dirty = False
        """Whether the edge was told that there are commands to write."""
        self.is_lost = False
        self.outstanding: dict[bytes, Message] = {}
        """
        The messages without a response, by id. A message that timed out and is delivered again takes the place of its
        former delivery.
        """

    @property
    def max_rdy_count(self) -> int:
        """ReadyConnection API."""
        return self.connection.server.max_rdy_count

    def send_rdy(self, count: int) -> None:
        """ReadyConnection API."""
        self.last_rdy = count
        self.send(self._commands.rdy(count))

    def send(self, command: bytes) -> None:
        """Buffer a command."""
        self.connection.send(command)
        if not self.is_dirty:
            self.is_dirty = True
            self._policy.changed(self)

    def finish(self, message: Message) -> None:
        """MessageOwner API."""
        policy = self._policy
        message.has_responded = True
        try:
            del self.outstanding[message.id]
        except KeyError:  # it was delivered again
            if self.is_lost:
                return
        policy.finished_count += 1
        if policy.backoff.level:  # the change of RDY is written before the FIN
            policy.on_signal(Signal.SUCCESS)
        self.send(self._commands.fin(message.id))
        if self.is_closing:
            policy.on_response(self)

    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None:
        """MessageOwner API."""
        policy = self._policy
        delay_ms = policy.delay_ms(message, delay)
        message.has_responded = True
        if self.is_lost:
            return
        self.outstanding.pop(message.id, None)
        policy.requeued_count += 1
        policy.on_signal(Signal.FAILURE if backoff else Signal.CONTINUE)
        self.send(self._commands.req(message.id, delay_ms, reason))
        if self.is_closing:
            policy.on_response(self)

    def touch(self, message: Message) -> None:
        """MessageOwner API."""
        if not self.is_lost:
            self.send(self._commands.touch(message.id))

    @property
    def is_starved(self) -> bool:
        """Whether most of the messages that nsqd may send are without a response."""
        count = len(self.outstanding)
        return not self.is_closing and count > 0 and count >= int(0.85 * self.last_rdy)


class ConsumerPolicy:
    """
    A consumer of `channel` of `topic`, with direct `nsqds` as host:port or a `lookup`. `changed` is told of a
    connection with commands to write. `clock` is read for events that come from messages.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        options: ClientOptions,
        *,
        nsqds: Sequence[str] = (),
        lookup: Lookup | None = None,
        changed: Callable[[ConsumerConnection], None],
        clock: Callable[[], float],
        log: Log,
        random: Random,
        auto_touch: bool = False,
        on_give_up: Callable[[Message], None] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._topic, self._channel = topic, channel
        self._options = options
        self.commands = commands_of(options)
        self._nsqds = nsqds
        self._lookup = lookup
        self.changed = changed
        self._clock = clock
        self._log = log
        self._random = random
        self._auto_touch = auto_touch
        self._on_give_up = on_give_up
        self._on_problem = on_problem
        self.phase = Phase.RUNNING
        self.connections: list[ConsumerConnection] = []
        self._known: set[str] = set()
        """The addresses that are connected, or being connected to."""
        self._failures: dict[str, int] = {}
        """Failures in a row, by address: attempts to connect, and to subscribe. Under "" those of the polls."""
        self._actions: list[Action] = []
        self.timers = Timers()
        self.backoff = Backoff(options, random)
        self.ready = ReadyDistribution(options, self.connections, random, self._retry_rdy)
        self.received_count = self.finished_count = self.requeued_count = 0
        self._requeued_at_stop = 0

    def take_actions(self) -> list[Action]:
        """Remove and return what the edge has to do."""
        actions, self._actions = self._actions, []
        return actions

    # -- begin and end

    def start(self, now: float) -> None:
        """Connect."""
        for address in self._nsqds:
            self._connect(address)
        if self._lookup is not None:
            self._poll()
            delay = self._random.random() * self._options.lookupd_poll_jitter
            self.timers.set("poll", now + (1 + delay) * self._options.lookupd_poll_interval)
        self.timers.set("redistribute", now + self._options.rdy_redistribute_interval)

    def stop(self, now: float, seconds: float = STOP_SECONDS) -> None:
        """Get no more messages; wait up to `seconds` for responses to those in flight."""
        if self.phase is not Phase.RUNNING:
            return
        self.phase = Phase.STOPPING
        must_touch = "touch" in self.timers
        self.timers.clear()
        self.timers.set("stop", now + seconds)
        if must_touch:
            self._touch(now)
        for connection in self.connections:
            connection.rdy = 0
            connection.send(self.commands.close())
        self._end_if_alone()

    def change_max_in_flight(self, count: int, now: float) -> None:
        """Set max_in_flight; 0 pauses the consumer."""
        self.ready.max_in_flight = count
        if self.phase is not Phase.RUNNING:
            return
        if not self.backoff.is_on:
            self.ready.share_out(now)
        elif not count:
            self.ready.stop_all(now)
        elif not self.backoff.is_paused and not self.ready.total:
            self._end_pause(now)

    @property
    def is_starved(self) -> bool:
        """Whether a connection waits for responses before it gets more messages."""
        return any(connection.is_starved for connection in self.connections)

    @property
    def in_flight(self) -> int:
        """Messages without a response."""
        return sum(len(connection.outstanding) for connection in self.connections)

    # -- events of connections

    def connected(self, connection: WireConnection, now: float) -> ConsumerConnection:
        """A connection that the policy asked for is ready."""
        made = ConsumerConnection(self, connection, now)
        self.connections.append(made)
        if self.phase is not Phase.RUNNING:
            self._actions.append(Disconnect(made))
            return made
        limit = connection.server.max_rdy_count
        if limit < self.ready.max_in_flight:
            self._log.warn(
                f"({connection.address}) max RDY count {limit} < consumer max in flight "
                f"{self.ready.max_in_flight}, truncation possible"
            )
        made.send(self.commands.sub(self._topic, self._channel))
        if self._auto_touch:
            self.timers.hasten("touch", now + connection.server.msg_timeout / 3)
        if not self.backoff.is_on:
            self.ready.share_out(now, last=made)
        return made

    def subscribed(self, source: ConsumerConnection) -> None:
        """The nsqd answered OK to SUB. Only now a connect has succeeded: nsqd closes after refusing SUB."""
        self._failures.pop(source.address, None)

    def connect_failed(self, address: str, error: ClientLibraryError, now: float) -> None:
        """A connection that the policy asked for cannot be opened, or is lost in its handshake."""
        self._log.warn(f"({address}) error connecting to nsqd - {error}")
        self._tell(address, error)
        self._known.discard(address)
        self._again(address, now)
        self._end_if_alone()

    def received(
        self, source: ConsumerConnection, messages: list[Message], frames: list[Frame], now: float
    ) -> list[Message]:
        """Data of a connection. Returns the messages for the application."""
        if messages:
            source.last_message = now
            outstanding = source.outstanding
            for message in messages:
                outstanding[message.id] = message
            self.received_count += len(messages)
            limit = self._options.max_attempts
            if limit and max([message.attempts for message in messages]) > limit:
                messages = [message for message in messages if not self._gave_up(message, limit)]
        for frame in frames:
            if frame.is_error:
                text = frame.data.decode("utf-8", "replace")
                self._log.warn(f"({source.address}) protocol error - {text}")
                self._tell(source.address, Refused(text))
            elif frame.data == _CLOSE_WAIT:
                source.is_closing = True
                source.rdy = 0
                self.on_response(source)
            elif frame.data == _OK:
                self.subscribed(source)
            else:
                self._log.warn(f"({source.address}) unexpected response {frame.data!r}")
        return messages

    def lost(self, source: ConsumerConnection, error: str, now: float) -> None:
        """A connection is closed. nsqd delivers its messages again."""
        self.connections.remove(source)
        self._known.discard(source.address)
        self.timers.cancel(source)
        for message in source.outstanding.values():
            message.has_responded = True
        had_rdy = source.rdy > 0 or source.has_retry
        source.rdy, source.is_closing, source.is_lost = 0, True, True
        source.outstanding.clear()
        if self.phase is Phase.RUNNING:
            self._log.warn(f"({source.address}) connection lost - {error}")
            self._tell(source.address, NotConnected(f"connection lost - {error}"))
            if had_rdy and (len(self.connections) == self.ready.max_in_flight or self.backoff.is_on):
                self.ready.needs_redistribution = True
            if self.connections and not self.backoff.is_on:
                self.ready.share_out(now)
            self._again(source.address, now)
        self._end_if_alone()

    # -- events of discovery

    def found(self, addresses: Sequence[str], now: float) -> None:
        """An nsqlookupd named the nsqds of the topic. Those that it does not name any more stay connected."""
        self._failures.pop("", None)
        if self.phase is not Phase.RUNNING:
            return
        for address in self._failures.keys() - {*addresses, *self._nsqds} - self._known:
            del self._failures[address]  # it may never come back
        for address in addresses:
            self._connect(address)

    def left_out(self, url: str, text: str) -> None:
        """An nsqlookupd named an nsqd that cannot be used."""
        self._log.warn(f"nsqlookupd ({url}) - {text}")
        self._tell(url, LookupFailed(text))

    def query_failed(self, url: str, error: ClientLibraryError, now: float) -> None:
        """An nsqlookupd did not answer usefully."""
        self._log.warn(f"error querying nsqlookupd ({url}) - {error}")
        self._tell(url, error)
        if self.phase is Phase.RUNNING and self._lookup is not None:
            queries = self._lookup.failed()
            self._actions += map(Query, queries)
            if not queries and not self._known:  # nothing to read from: ask again soon
                self._poll_again("", now)

    # -- events of messages

    def on_signal(self, signal: Signal) -> None:
        """A message was finished or requeued."""
        if self.phase is not Phase.RUNNING:
            return
        now = self._clock()
        step = self.backoff.on_signal(signal)
        if step is Step.RESUME:
            self._log.info(f"exiting backoff, returning all to RDY {self.ready.share}")
            self.ready.share_out(now)
        elif step is Step.PAUSE:
            self._log.warn(
                f"backing off for {self.backoff.pause:.4g}s (backoff level {self.backoff.level}), setting all to RDY 0"
            )
            self.ready.stop_all(now)
            self.timers.set("backoff", now + self.backoff.pause)

    def on_response(self, source: ConsumerConnection) -> None:
        """A connection that nsqd has ended (CLOSE_WAIT) may have no message left."""
        if source.is_closing and not source.outstanding and source in self.connections:
            self._actions.append(Disconnect(source))
            self.changed(source)

    def delay_ms(self, message: Message, delay: float | None) -> int:
        if delay is None or delay < 0:
            options = self._options
            delay = min(options.default_requeue_delay * message.attempts, options.max_requeue_delay)
        return int(delay * 1000)

    # -- time

    def on_timer(self, now: float) -> None:
        """Do what is due."""
        for key in self.timers.pop_due(now):
            if key == "backoff":
                self._end_pause(now)
            elif key == "redistribute":
                self.timers.set("redistribute", now + self._options.rdy_redistribute_interval)
                if not self.backoff.is_paused:
                    self.ready.redistribute(now, in_backoff=self.backoff.is_on)
            elif key == "poll":
                self._poll()
                self.timers.set("poll", now + self._options.lookupd_poll_interval)
            elif key == "touch":
                self._touch(now)
            elif key == "stop":
                self._give_back()
            elif isinstance(key, str):  # an address
                self._connect(key)
            elif isinstance(key, ConsumerConnection) and key in self.connections and not self.backoff.is_on:
                self.ready.set(key, self.ready.share, now)

    # -- inside

    def _connect(self, address: str) -> None:
        if address not in self._known:
            self._known.add(address)
            self.timers.cancel(address)
            self._actions.append(Connect(address))

    def _again(self, address: str, now: float) -> None:
        """Connect again after a while: to a direct nsqd, or to what an nsqlookupd then names."""
        if self.phase is not Phase.RUNNING:
            return
        if address in self._nsqds:
            self.timers.set(address, now + self._next_delay(address))
        elif self._lookup is not None:
            self._poll_again(address, now)

    def _poll_again(self, key: str, now: float) -> None:
        """Poll earlier than planned because of `key`, an nsqd or "" for the nsqlookupds, and the later the more."""
        jitter = 1 + self._random.random() * self._options.lookupd_poll_jitter
        self.timers.hasten("poll", now + self._next_delay(key) * jitter)

    def _next_delay(self, key: str) -> float:
        """Count a failure. Returns the seconds until the next attempt."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        limit = self._options.lookupd_poll_interval
        return min(_RETRY_SECONDS * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), limit)

    def _poll(self) -> None:
        if self._lookup is not None:
            self._actions += map(Query, self._lookup.poll())

    def _retry_rdy(self, connection: ReadyConnection) -> None:
        self.timers.set(connection, self._clock() + RETRY_SECONDS)  # type: ignore[arg-type]

    def _end_pause(self, now: float) -> None:
        """Let one random connection get one message, as a test."""
        candidates = [connection for connection in self.connections if not connection.is_closing]
        if not candidates or not self.ready.max_in_flight:
            self.timers.set("backoff", now + _PAUSE_RETRY_SECONDS)
            return
        self.backoff.end_pause()
        self.ready.set(self._random.choice(candidates), 1, now)

    def _touch(self, now: float) -> None:
        timeouts = [connection.connection.server.msg_timeout for connection in self.connections]
        for connection in self.connections:
            for message in connection.outstanding.values():
                connection.touch(message)
        if timeouts:
            self.timers.set("touch", now + min(timeouts) / 3)

    def _gave_up(self, message: Message, limit: int) -> bool:
        if message.attempts <= limit:
            return False
        text = message.id.decode("latin-1")
        self._log.warn(f"msg {text} attempted {message.attempts} times, giving up")
        if self._on_give_up is not None:
            try:
                self._on_give_up(message)
            except Exception as error:  # of the application: the connection goes on
                self._log.warn(f"on_give_up failed for msg {text} - {error!r}")
        message.finish()
        return True

    def _tell(self, address: str, error: ClientLibraryError) -> None:
        if self._on_problem is not None and self.phase is Phase.RUNNING:
            try:
                self._on_problem(address, error)
            except Exception as failure:  # of the application: the consumer goes on
                self._log.warn(f"on_problem failed for {address} - {failure!r}")

    def _give_back(self) -> None:
        """The stop has waited long enough."""
        for connection in list(self.connections):
            for message in list(connection.outstanding.values()):
                message.requeue(0, backoff=False)
                self._requeued_at_stop += 1
            self._actions.append(Disconnect(connection))

    def _end_if_alone(self) -> None:
        if self.phase is Phase.STOPPING and not self.connections:
            self.phase = Phase.STOPPED
            self.timers.clear()
            self._actions.append(Finished(self._requeued_at_stop))
