"""
A subscription of a guarded connection: its checks, the command that waits for rights, and the receiver of version 1 of
`IBroker`.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable

from zope.interface import classImplements

from nsqtw.errors import ClientError
from nsqtw.interfaces import Answered, IReceiver
from nsqtw.options.broker import Options
from nsqtw.protocols.guarded.commands import Command
from nsqtw.protocols.guarded.consumer import ClientConsumer
from nsqtw.protocols.guarded.messages import Batch, Message
from nsqtw.protocols.parameters import checked_name
from nsqtw.protocols.subscription import is_msg_timeout


class Subscribe(Command):
    """A subscription of `consumer`, which `join` makes. `once`: a connection has one."""

    __slots__ = ("_join", "consumer", "once")

    def __init__(
        self, join: Callable[[Subscribe], None], topic: str, channel: str, consumer: ClientConsumer, *, once: bool
    ) -> None:
        self.verb, self.topic, self.channel = b"SUB", topic, channel
        self._join = join
        self.consumer = consumer
        self.once = once

    def execute(self) -> None:
        """Command API."""
        self._join(self)

    def refuse(self, error: ClientError) -> None:
        """Command API."""
        self.consumer.tell_subscribed(error)


class Callbacks:
    """The receiver of `IBroker.subscribe`."""

    def __init__(self, deliver: Callable[[list[Message]], None], ended: Callable[[], None], answered: Answered) -> None:
        self._deliver = deliver
        self._ended = ended
        self._answered = answered

    def subscribed(self, error: ClientError | None) -> None:
        """IReceiver API."""
        self._answered(error)

    def deliver(self, batch: Batch) -> None:
        """IReceiver API."""
        self._deliver(batch.messages())

    def paused(self, is_paused: bool) -> None:
        """IReceiver API."""

    def ended(self, error: ClientError | None) -> None:
        """IReceiver API."""
        self._ended()


def check_subscription(topic: str, channel: str, msg_timeout: float | None, options: Options) -> None:
    """Check the names of a subscription, and its message timeout in seconds if it has one. ClientError."""
    checked_name(topic.encode("utf-8", "replace"), "E_BAD_TOPIC", "SUB topic name")
    checked_name(channel.encode("utf-8", "replace"), "E_BAD_CHANNEL", "SUB channel name")
    if msg_timeout is not None and not is_msg_timeout(msg_timeout, options):
        raise ClientError("E_BAD_BODY", f"SUB msg timeout ({msg_timeout * 1000:.0f}) is invalid")


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(Callbacks, IReceiver)
