"""
Session of NSQ's protocol V2: one for each connection.

Theory of operation. The table of commands (`protocols.v2`) says in which states each is allowed. `Replies` keeps the
order of the answers: a publish that is not committed yet has a slot there. A session is *blocked*, and carries out no
further command, while a new channel is being saved, while the client's rights are asked for, after enough commands for
one step, and while it rests after too many commands without effect. The reasons are bits of `_blocked`.

A mistake of the client is raised as ClientError and becomes an error frame in one place; a fatal one ends the session
once it is written.

Performance: once per command or run of commands.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from zope.interface import classImplements

from nsqtw.core.broker import Broker
from nsqtw.core.client import ClientState
from nsqtw.core.topic import Topic
from nsqtw.errors import ClientError, LineTooLong
from nsqtw.interfaces import ICountedProtocol
from nsqtw.options.types import DEBUG
from nsqtw.protocols.client import RESTS, CommandClient, new_client
from nsqtw.protocols.frames import CLOSE_WAIT, ERROR, HEARTBEAT, OK, RESPONSE, frame
from nsqtw.protocols.parameters import checked_topic, hidden, need_names, text_of
from nsqtw.protocols.replies import Replies, ReplySlot
from nsqtw.protocols.v2_codec import V2Codec
from nsqtw.protocols.v2_command import ANY_STATE, Commands, CommandSpec
from nsqtw.protocols.v2_identity import Identity
from nsqtw.protocols.v2_publish import Publish, PublishingSession, delay_ms_of
from nsqtw.protocols.v2_subscription import Subscriber, check_subscription
from nsqtw.protocols.v2_timeout import CommandTimeout
from nsqtw.protocols.v2_trace import Trace
from nsqtw.protocols.v2_upgrade import Upgrades
from nsqtw.rights import SUBSCRIBE
from nsqtw.upgrades import Upgrade

# Why a session carries out no further command, beside the reasons of `protocols.client`.
SAVES_CHANNEL: Final = 4
"""A new channel is being saved."""
IS_BEHIND: Final = 8
"""It has done enough for one step."""
MAX_UNREAD_REPLIES: Final = 1000
"""Replies a client may leave unread before it is not read from either."""
STEP_COMMANDS: Final = 256
"""Commands that are carried out at once; the others wait until the edge calls `receive_data` again."""
FAILURE_COST: Final = 4
"""The cost, in commands, of an error that does not end the session and is logged."""


class V2Session(PublishingSession):
    """One connection. See IProtocol for the callers."""

    def __init__(
        self, broker: Broker, remote_address: str, changed: Callable[[], None], now: float, commands: Commands
    ) -> None:
        client = new_client(broker, remote_address, "V2", now)
        super().__init__(client.published)
        self._broker = broker
        self._commands = commands
        self._options = broker.options
        self._changed = changed
        self._codec = V2Codec(broker.options, self._check_body_command, commands)
        self.client = client
        self._identity = Identity(self.client, broker.options, broker.log)
        self._command_timeout = CommandTimeout(self._codec, self._identity.settings, broker.options)
        self._has_no_heartbeat = False
        self._state = ClientState.INIT
        self._subscriber: Subscriber | None = None
        self._replies = Replies(changed, self._end)
        self._ending = False
        self._blocked = 0
        """The reasons for which no further command is carried out. Deliveries have another: the replies are paused."""
        self._spent = 0
        """The cost of commands beyond the one that each counts as, since the last step."""
        self._last_command = now
        self._last_topic: Topic | None = None
        """The last topic: most publishers publish to one."""
        self._last_name = b""
        self._beat = self._identity.settings.heartbeat_interval
        self._next_heartbeat = now + self._beat
        self._failure = ""
        """The error this session ends with, for the log."""
        self._trace = Trace(broker.log, self.client, commands)
        self._is_traced = False
        """The log level at the last input of the client."""
        self._broker_client = CommandClient(broker, self.client, self._wait, self._go_on, self._count_effects)
        self._idle = self._broker_client.idle
        self._client_auth = (
            None
            if broker.authorizations is None
            else self._broker_client.need_rights(broker.authorizations, self._refuse)
        )
        self._upgrades = Upgrades(self.client, self._replies, broker.log, self._secured, self._fail)
        self._needs_tls = bool(broker.options.tls_required)
        """Until it has it, IDENTIFY is the one command there is."""
        broker.timers.schedule(self._next_heartbeat, self)

    # -- IProtocol

    @property
    def closing(self) -> bool:
        return self._ending and not self._replies.are_pending

    @property
    def wants_data(self) -> int:
        if self._blocked or self.async_count or self._upgrades.is_pending:
            return 0
        if self._replies.unread_count >= MAX_UNREAD_REPLIES:
            return 0
        return 1 if self._subscriber is None else self._subscriber.fin_coalescing.min_read_bytes

    def receive_data(self, chunk: bytes, now: float) -> None:
        if not (self._ending or self._upgrades.is_pending):
            if self._has_no_heartbeat:
                self._await_rest(now)
            self._replies.are_awaited = True
            if chunk:
                self._codec.feed(chunk)
            else:
                self._blocked &= ~IS_BEHIND
            self._is_traced = self._codec.checks_each = self._options.log_level <= DEBUG
            subscriber = self._subscriber
            if subscriber is None:
                self._run_commands(now)
            else:
                had = subscriber.consumer.in_flight.count
                self._run_commands(now)
                in_flight = subscriber.consumer.in_flight.count
                subscriber.fin_coalescing.record(had - in_flight, in_flight, now)
            if self._is_traced and self._subscriber is not None:
                self._trace.state()

    @property
    def unfinished_bytes(self) -> int:
        return self._codec.pending_bytes

    def receive_end(self, now: float) -> None:
        error = self._codec.interrupted()
        if error is not None and not self._ending:
            self._refuse(error)
        self._end()
        self._codec.forget()

    @property
    def is_behind(self) -> bool:
        return self._blocked & IS_BEHIND != 0

    @property
    def refused(self) -> str:
        return self._broker_client.refused

    def data_to_send(self) -> list[bytes | Upgrade]:
        out = self._replies.take()
        if self._upgrades.is_pending:
            self._upgrades.taken()
        if out and self._is_traced and self._subscriber is not None:
            self._trace.written(item for item in out if isinstance(item, bytes))
            self._trace.state()
        return out

    def pause_delivery(self) -> None:
        self._replies.pause()
        if self._subscriber is not None:
            self._subscriber.consumer.is_blocked = True

    def resume_delivery(self, now: float) -> None:
        self._replies.resume()
        if self._subscriber is not None and not self._ending:
            self._subscriber.consumer.is_blocked = False
            self._subscriber.channel.wake()

    def connection_lost(self, now: float) -> None:
        self._ending = True
        self._blocked &= ~IS_BEHIND
        self._replies.close()
        self._codec.close()
        self._upgrades.close()
        self._broker.timers.cancel(self)
        self._broker_client.leave()
        self._client_auth = None
        self._log("info", "PROTOCOL(V2): [{client}] exiting ioloop")
        if self._failure:
            self._log("error", "client({client}) - {error}", error=self._failure)
        if self._subscriber is not None:
            self._subscriber.channel.leave(self._subscriber.consumer)
            self._subscriber = None
        self._log("info", "PROTOCOL(V2): [{client}] exiting messagePump")

    # -- time

    def on_timer(self, now: float) -> float | None:
        """Heartbeats, a client that is silent for too long, and commands that waited for a birth or for rights."""
        if not self._blocked:
            self._run_commands(now)
        if self._replies.are_pending or not self.wants_data:
            self._last_command = now  # the broker takes long, or a slow reader, which the connection detects
        deadline = self._command_timeout.deadline(self._last_command)
        if now >= deadline and not (self._ending or self._command_timeout.still_comes(self._last_command, now)):
            self._failure = "failed to read command - i/o timeout"
            self.receive_end(now)
        if self._ending:
            return None
        if now >= self._next_heartbeat:
            if not self._upgrades.is_pending:
                self._replies.push(HEARTBEAT)
            self._next_heartbeat = now + self._beat
        next_due = min(self._next_heartbeat, self._command_timeout.deadline(self._last_command))
        return next_due if next_due < inf else None

    def _await_rest(self, now: float) -> None:
        """Without heartbeats no timer would detect an incomplete command."""
        if not self._codec.is_inside:
            self._last_command = now
        if self._options.body_timeout:
            self._broker.timers.schedule(now + self._options.body_timeout, self)

    # -- replies

    def error_frame(self, error: ClientError) -> bytes:
        """PublishingSession API. The one place where an error becomes a frame, and a line in the log."""
        self._broker_client.log_refusal(error)
        if error.fatal:
            self._failure = error.log_text
        return frame(ERROR, error.frame_data)

    def _fail(self, error: ClientError) -> bytes:
        """The session ends with this error, whose frame the connection writes by itself."""
        self._end()
        return self.error_frame(error)

    def _refuse(self, error: ClientError, slot: ReplySlot | None = None) -> None:
        """Answer with an error, in `slot` or behind all replies; after a fatal one the session ends."""
        if error.fatal:
            self._end()
        else:
            self._spent += FAILURE_COST
            if self._spent >= STEP_COMMANDS and not self._ending:
                self._spent = 0
                self._blocked |= IS_BEHIND
                self._changed()
            self._idle.record(self._last_command)
        (slot or self._replies.reserve()).set(self.error_frame(error), is_last=error.fatal)

    def _wait(self, reason: int) -> None:
        """Carry out no further command, because of one more reason."""
        self._blocked |= reason

    def _go_on(self, reason: int, now: float) -> None:
        """Look at the next command, unless there is another reason not to."""
        self._blocked &= ~reason
        self._changed()  # it may come at any time, and nothing else looks at the agenda before it is due
        if reason != RESTS:
            self._broker.timers.schedule(self._last_command, self)
        elif not self._blocked:
            self._run_commands(now)

    def _end(self) -> None:
        """Read, execute and deliver nothing more; replies that are due are still written."""
        self._ending = True
        self._blocked &= ~IS_BEHIND
        if self._subscriber is not None:
            self._subscriber.consumer.is_blocked = True
        self._changed()

    # -- commands

    def _run_commands(self, now: float) -> None:
        """Carry out what has come, STEP_COMMANDS of it at most; then `is_behind` says that some may be left."""
        try:
            if (
                self._client_auth is not None
                and not (self._ending or self._blocked)
                and (parked := self._client_auth.take_parked()) is not None
            ):
                verb, params, payload = parked
                self._carry_out(verb, params, payload, now)
            for _ in range(STEP_COMMANDS):
                if self._ending or self._blocked:
                    return
                command = self._codec.next_command()
                if command is None:
                    return
                self._last_command = now
                verb, params, payload, count = command
                if self._is_traced:
                    self._trace.command(verb, params, payload)
                if count and self._subscriber is not None:
                    self._subscriber.finish_in_order(count, now)
                else:
                    self._carry_out(verb, params, payload, now)
            if not (self._ending or self._blocked):
                self._blocked |= IS_BEHIND
                self._changed()
        except ClientError as error:
            self._refuse(error)
        except LineTooLong:
            self._failure = "failed to read command - bufio: buffer full"
            self._end()

    def _carry_out(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """Check a command as far as that was not done before its body was read, and do it. ClientError."""
        spec = self._commands.get(verb, _UNKNOWN)
        if self._needs_tls or self._state not in spec.states:
            self._check_state(spec, verb)
        if not payload and spec.check is not None:
            spec.check(self, verb, params)
        if self._client_auth is not None and spec.right:
            channel = params[1] if spec.right == SUBSCRIBE else b""
            if self._client_auth.must_wait(verb, params, payload, channel, now):
                return
        if spec.handle is not None:
            spec.handle(self, verb, params, payload, now)
        elif spec.consume is not None:
            assert self._subscriber is not None, "the table lets only subscribed sessions here"
            spec.consume(self._subscriber, verb, params, payload, now)

    def _check_body_command(self, verb: bytes, params: Sequence[bytes]) -> None:
        """Check a command before its body is read."""
        if self._is_traced:
            self._trace.body_begins(verb, params)
        spec = self._commands[verb]
        self._check_state(spec, verb)
        if spec.check is not None:
            spec.check(self, verb, params)

    def on_identify(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        fields, settings = self._identity.learn(payload[0]), self._identity.settings
        if self._identity.count == 1:
            self._beat = settings.heartbeat_interval or inf
            self._next_heartbeat = now + self._beat
        self._has_no_heartbeat = not settings.heartbeat_interval
        self._broker.timers.schedule(min(self._next_heartbeat, self._command_timeout.deadline(now)), self)
        if not fields["feature_negotiation"]:
            self._replies.add(OK)
            return
        features, answer = self._identity.negotiate(fields, needs_auth=self._client_auth is not None)
        self._replies.add(frame(RESPONSE, answer))
        self._upgrades.begin(features)
        if self._upgrades.is_pending:
            self._codec.forget()

    def _secured(self) -> None:
        """The connection is TLS now."""
        self._needs_tls = False

    def check_auth(self, verb: bytes, params: Sequence[bytes]) -> None:
        if params:
            raise ClientError("E_INVALID", "AUTH invalid number of parameters")

    def on_auth(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        if self._client_auth is None:
            raise ClientError("E_AUTH_DISABLED", "AUTH disabled")
        self._client_auth.show(payload[0], self._replies.reserve)

    def check_sub(self, verb: bytes, params: Sequence[bytes]) -> None:
        if not self._identity.settings.heartbeat_interval:
            raise ClientError("E_INVALID", "cannot SUB with heartbeats disabled")
        check_subscription(params)

    def on_sub(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        topic, channel = params[0].decode(), params[1].decode()
        consumer = self._identity.consumer(self._broker.timers, self._replies.push, self._end)
        consumer.is_blocked = self._replies.is_paused
        joined = self._broker_client.join(topic, channel, consumer, now)
        self._subscriber = Subscriber(consumer, joined, self._options, self._refuse, self._log)
        self._codec.expected_fins = consumer.in_flight.next_ids
        self._set_state(ClientState.SUBSCRIBED)
        self._blocked |= SAVES_CHANNEL
        self._broker_client.when_saved(joined, self._channel_saved)

    def _channel_saved(self, error: ClientError | None) -> None:
        """The channel survives a crash from now on: only now SUB is answered, and the next command looked at."""
        self._go_on(SAVES_CHANNEL, self._last_command)
        if error is None:
            self._replies.add(OK)
        else:
            self._refuse(error)

    def check_pub(self, verb: bytes, params: Sequence[bytes]) -> None:
        need_names(verb, params, 1)
        checked_topic(verb, params[0])

    def on_pub(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """PUB, or a run of them."""
        topic = self._topic(verb, params[0])
        count = len(payload)
        if count == 1 or topic.bounds is None:
            self._put(verb, topic, payload, 0, count)
            return
        rejected_count = topic.rejected_count
        for body in payload:  # the first ones may be accepted, and nothing after one is refused
            self._put(verb, topic, [body], 0, 1)
            if topic.rejected_count != rejected_count:
                return

    def check_mpub(self, verb: bytes, params: Sequence[bytes]) -> None:
        """Make its topic, too, as nsqd does: before the body is read."""
        self.check_pub(verb, params)
        if self._client_auth is None or self._client_auth.admits_now(verb, params[0]):
            self._topic(verb, params[0])

    def on_mpub(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        self._put(verb, self._topic(verb, params[0]), payload, 0, 1)

    def check_dpub(self, verb: bytes, params: Sequence[bytes]) -> None:
        need_names(verb, params, 2)
        checked_topic(verb, params[0])
        delay_ms_of(params[1], self._options)

    def on_dpub(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        self._put(verb, self._topic(verb, params[0]), payload, delay_ms_of(params[1], self._options), 1)

    def on_rdy(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """RDY"""
        assert self._subscriber is not None, "the table lets only subscribed sessions here"
        self._idle.record(now)
        self._subscriber.ready(params)

    def on_cls(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        assert self._subscriber is not None, "the table lets only subscribed sessions here"
        self._subscriber.close()
        self._set_state(ClientState.CLOSING)
        self._replies.add(CLOSE_WAIT)

    def on_nop(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """A sign of life."""
        self._idle.record(now)

    # -- inside

    def _put(self, verb: bytes, topic: Topic, bodies: list[bytes], delay_ms: int, reply_count: int) -> None:
        publish = Publish(self, self._replies, verb, topic.name, len(bodies), reply_count)
        if topic.commits_async:
            publish.commits_async = True
            self.async_count += 1
        topic.put(bodies, delay_ms, publish.on_commit)

    def _count_effects(self) -> int:
        """Return how many messages of the client were published, finished or requeued."""
        client = self.client
        return client.finish_count + client.requeue_count + sum(self.published.by_topic().values())

    def _check_state(self, spec: CommandSpec[V2Session], verb: bytes) -> None:
        """ClientError when a command is not allowed now."""
        lacks_tls = self._needs_tls and not spec.before_tls
        if lacks_tls or self._state not in spec.states:
            shown = verb.decode() if verb in self._commands else hidden(verb)
            text = "cannot {} in current state" + (" (TLS required)" if lacks_tls else "")
            raise ClientError("E_INVALID", text.format(text_of(verb)), logged=text.format(shown))

    def _set_state(self, state: ClientState) -> None:
        self._state = self.client.state = state

    def _topic(self, verb: bytes, name: bytes) -> Topic:
        last = self._last_topic
        if last is not None and not last.exiting and name == self._last_name:
            return last
        topic = self._broker.topics.get(name.decode())
        if topic is None:
            topic = self._broker_client.new_topic(verb.decode(), name.decode())
        self._last_topic, self._last_name = topic, name
        return topic

    def _log(self, level: str, text: str, **fields: object) -> None:
        self._broker.log(level, text, client=self.client.remote_address, **fields)


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(V2Session, ICountedProtocol)


def _fail_unknown(session: V2Session, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
    raise ClientError("E_INVALID", f"invalid command {text_of(verb)}", logged=f"invalid command {hidden(verb)}")


_UNKNOWN: Final = CommandSpec(ANY_STATE, _fail_unknown)
