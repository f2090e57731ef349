"""
The access of one connection to the broker, shared by V2 and the protocols of plugins.

`ClientAccess` registers a client, creates topics within the quotas, subscribes it to channels, and logs refused
commands. `MessageAccess` executes the commands of a consumer about its messages, within the limits. Permissions are
checked before, by `ClientAuth` (`protocols.v2_auth`).

Performance: called once per command or run of commands.
"""

# mypyc: compiled

from __future__ import annotations

from typing import Final

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client
from nsqtw.core.consumer import Consumer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, CapReached, ChannelFull, ClientError, Exiting
from nsqtw.options.broker import Options
from nsqtw.protocols.parameters import shown_id, text_of

MIN_MSG_TIMEOUT: Final = 1.0
"""Seconds."""


class ClientAccess:
    """`client` is known to `broker` from here on, until `leave`."""

    __slots__ = ("_broker", "client")

    def __init__(self, broker: Broker, client: Client) -> None:
        self._broker = broker
        self.client = client
        broker.clients[id(self)] = client

    def leave(self) -> None:
        """The connection is gone."""
        self._broker.clients.pop(id(self), None)

    def new_topic(self, command: str, name: str) -> Topic:
        """Make the topic of a publish, which there is not. ClientError."""
        try:
            return self._broker.topic(name)
        except (Exiting, BackendError, CapReached) as error:
            raise ClientError(f"E_{command}_FAILED", f"{command} failed {error}") from None

    @property
    def must_rest(self) -> bool:
        """Whether the limit of new topics in this turn is reached."""
        return self._broker.quotas.is_full

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
        return joined

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


class MessageAccess:
    """The commands of `consumer` in `channel`. `options` has their limits."""

    __slots__ = ("channel", "consumer", "options")

    def __init__(self, consumer: Consumer, channel: Channel, options: Options) -> None:
        self.consumer = consumer
        self.channel = channel
        self.options = options

    def set_ready(self, count: int) -> None:
        """RDY: allow up to `count` messages in flight. ClientError."""
        limit = self.options.max_rdy_count
        if not 0 <= count <= limit:
            raise ClientError("E_INVALID", f"RDY count {count} out of range 0-{limit}")
        self.channel.set_ready(self.consumer, count)

    def finish_all(self, ids: list[bytes], now: float) -> list[ClientError]:
        """Finish messages. Returns an error for each that could not be."""
        failed = self.channel.finish(self.consumer, ids, now)
        return [_failure("FIN", message_id, why) for message_id, why in failed] if failed else []

    def requeue_one(self, message_id: bytes, delay: float, now: float, reason: str = "") -> ClientError | None:
        """Have a message delivered again after `delay` seconds, or after the nearest that is allowed."""
        delay = min(max(delay, 0.0), self.options.max_req_timeout)
        why = self.channel.requeue(self.consumer, message_id, delay, now, reason)
        return None if why is None else _failure("REQ", message_id, why)

    def touch_one(self, message_id: bytes, now: float) -> ClientError | None:
        """TOUCH: restart the timeout of a message."""
        why = self.channel.touch(self.consumer, message_id, now)
        return None if why is None else _failure("TOUCH", message_id, why)


def is_msg_timeout(seconds: float, options: Options) -> bool:
    """Return whether a client may ask for a message timeout, whatever it asks with."""
    return MIN_MSG_TIMEOUT <= seconds <= options.max_msg_timeout


def _failure(command: str, message_id: bytes, why: str) -> ClientError:
    text = f"{command} {text_of(message_id)} failed {why}"
    logged = f"{command} {shown_id(message_id)} failed {why}"
    return ClientError(f"E_{command}_FAILED", text, fatal=False, logged=logged)
