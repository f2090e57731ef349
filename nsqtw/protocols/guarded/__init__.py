"""
The broker as the protocol of one connection sees it: `IBroker` and `IConsumer`, which check every command.

    broker       ClientBroker: the connection, its rights, publishes and subscriptions
    consumer     ClientConsumer: one subscription
    byte_credit  the bytes in flight of a subscription
    publish      the checks of a publish, and its answer
    subscribe    the checks of a subscription, and the receiver of version 1
    commands     the order of commands while rights are asked for
    messages     messages as a protocol is given them

Refusals have the codes, the texts and the log lines of V2.
"""

from nsqtw.protocols.guarded.broker import ClientBroker
from nsqtw.protocols.guarded.commands import MAX_WAITING
from nsqtw.protocols.guarded.messages import Batch, Message

__all__ = ["MAX_WAITING", "Batch", "ClientBroker", "Message"]
