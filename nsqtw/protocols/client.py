"""
A client of the broker, whatever it speaks: V2, V3, a protocol of a plugin, or HTTP.

`BrokerClient` registers a client, creates topics within the quotas, has it join channels, and logs refused commands.
`CommandClient` is one that sends commands: it has rights (`protocols.v2_auth`), and rests after too many new topics and
after too many commands without effect. `protocols.subscription` has the commands of a consumer about its messages.

Performance: called once per subscription, new topic or command without effect.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client, ClientState
from nsqtw.core.consumer import Consumer
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, CapReached, ChannelFull, ClientError, Exiting, HeadersRefused
from nsqtw.protocols.idle_commands import OPTION, IdleCommands
from nsqtw.protocols.replies import ReplySlot
from nsqtw.protocols.v2_auth import ClientAuth
from nsqtw.rights import Authorizations
from nsqtw.upgrades import Secured

# Why the commands of a client wait.
ASKS_RIGHTS: Final = 1
"""Its rights are asked for."""
RESTS: Final = 2
"""It has had enough new topics in this turn, or enough commands without effect."""


def new_client(broker: Broker, address: str, protocol: str, now: float, secured: Secured | None = None) -> Client:
    """Return the client at `address`, as /stats shows it. `secured` is what is known of its TLS; None without."""
    client = Client(address, int(broker.timestamp_ns(now) // 10**9), version=protocol)
    client.client_id = client.hostname = client.host
    if secured is not None:
        note_tls(client, secured)
    return client


def note_tls(client: Client, secured: Secured) -> None:
    """The connection of `client` is TLS."""
    client.tls, client.common_name = True, secured.common_name
    client.tls_version, client.tls_cipher_suite = secured.version, secured.cipher_suite


def publish_failed(verb: str, error: Exception) -> ClientError:
    """Return what the client is told when a publish could not be stored, or its topic could not be made."""
    code = "E_BAD_HEADERS" if isinstance(error, HeadersRefused) else f"E_{verb}_FAILED"
    return ClientError(code, f"{verb} failed {error}")


class BrokerClient(Timer):
    """`client` is known to `broker` from here on, until `leave`."""

    def __init__(self, broker: Broker, client: Client) -> None:
        super().__init__()
        self._broker = broker
        self.client = client
        broker.clients[id(self)] = client

    def leave(self) -> None:
        """The connection is gone."""
        self._broker.clients.pop(id(self), None)
        self._broker.drain_listeners.pop(id(self), None)

    def new_topic(self, command: str, name: str) -> Topic:
        """Make the topic of a publish, which there is not. ClientError."""
        try:
            return self._broker.topic(name)
        except (Exiting, BackendError, CapReached) as error:
            raise publish_failed(command, error) from None

    def join(self, topic: str, channel: str, consumer: Consumer, now: float) -> Channel:
        """Subscribe to a channel, which is made when there is none. ClientError."""
        try:
            joined = self._broker.topic(topic).channel(channel, now)
            joined.subscribe(consumer)
        except ChannelFull:
            limit = self._broker.options.max_channel_consumers
            text = f"SUB failed consumers for {topic}:{channel} exceeds limit of {limit}"
            raise ClientError("E_SUB_FAILED", text) from None
        except (Exiting, BackendError, CapReached) as error:
            raise ClientError("E_SUB_FAILED", f"SUB failed {error}") from None
        consumer.client.state = ClientState.SUBSCRIBED
        return joined

    def when_saved(self, joined: Channel, told: Callable[[ClientError | None], None]) -> None:
        """Call `told` once a channel survives a crash: at once if it does already. Or with why it does not."""

        def saved(error: Exception | None) -> None:
            told(None if error is None else ClientError("E_SUB_FAILED", f"SUB failed {error}"))

        if joined.is_saved:
            told(None)
        else:
            self._broker.checkpointer.ask(saved)

    def on_drain(self, told: Callable[[], None]) -> None:
        """Call `told` when a drain begins."""
        self._broker.drain_listeners[id(self)] = told

    def log_refusal(self, error: ClientError) -> None:
        """Count a command that was refused, and write the line about it."""
        client = self.client
        counts = self._broker.protocol_errors
        counts[error.code] = counts.get(error.code, 0) + 1
        if client.auth_identity:
            text = "[{client}] - {error} (identity {identity})"
            identity = client.auth_identity
            self._broker.log("error", text, client=client.remote_address, error=error.log_text, identity=identity)
        else:
            self._broker.log("error", "[{client}] - {error}", client=client.remote_address, error=error.log_text)


class CommandClient(BrokerClient):
    """
    A client that sends commands. `wait` suspends them, and `go_on` resumes them at a time, for one of these reasons.
    `effects` is that of `IdleCommands`.
    """

    def __init__(
        self,
        broker: Broker,
        client: Client,
        wait: Callable[[int], None],
        go_on: Callable[[int, float], None],
        effects: Callable[[], int],
    ) -> None:
        super().__init__(broker, client)
        self._wait = wait
        self._go_on = go_on
        self.idle = IdleCommands(broker.options.max_idle_commands, effects, self._rest)
        """Its commands without effect."""
        self._rests = False
        self.auth: ClientAuth | None = None
        """None: everything is allowed."""

    def need_rights(
        self, authorizations: Authorizations, refuse: Callable[[ClientError, ReplySlot | None], None]
    ) -> ClientAuth:
        """Have the rights of the client looked up, and let `refuse` answer as ClientAuth says."""
        wait = partial(self._wait, ASKS_RIGHTS)
        self.auth = ClientAuth(self.client, authorizations, self._broker.log, refuse, wait, self._has_rights)
        return self.auth

    def leave(self) -> None:
        """The connection is gone."""
        super().leave()
        self._broker.timers.cancel(self)
        self.idle.close()
        self._wait, self._go_on = _no_wait, _no_go_on  # they refer to what refers to this object
        if self.auth is not None:
            self.auth.detach()
            self.auth = None

    def new_topic(self, command: str, name: str) -> Topic:
        """Make the topic of a publish, which there is not. ClientError."""
        topic = super().new_topic(command, name)
        self._rest_if_full()
        return topic

    def join(self, topic: str, channel: str, consumer: Consumer, now: float) -> Channel:
        """Subscribe to a channel, which is made when there is none. ClientError."""
        joined = super().join(topic, channel, consumer, now)
        self._rest_if_full()
        return joined

    @property
    def refused(self) -> str:
        """The name of the option whose limit ended the client; empty when none did."""
        return OPTION if self.idle.is_exceeded else ""

    def on_timer(self, now: float) -> float | None:
        """Timer API: the rest is over."""
        self._rests = False
        self._go_on(RESTS, now)
        return None

    def _rest_if_full(self) -> None:
        """After the new topics that a turn may have, the next command waits for the next turn."""
        if self._broker.quotas.is_full:
            self._rest(0.0)

    def _rest(self, until: float) -> None:
        if not self._rests:
            self._rests = True
            self._wait(RESTS)
            self._broker.timers.schedule(until, self)

    def _has_rights(self) -> None:
        assert self.auth is not None, "it has asked for rights"
        self._go_on(ASKS_RIGHTS, self.auth.now())


def _no_wait(reason: int) -> None:
    """The client has left."""


def _no_go_on(reason: int, now: float) -> None:
    """The client has left."""
