"""
The client library: consumers and producers for NSQ on Twisted and on asyncio.

    from nsqtw.client.asyncio import Consumer, Producer
    from nsqtw.client.twisted import Consumer, Producer

Modules, from the bottom: `commands` and `frames` are the codec, `connection` is one connection without IO, `backoff`,
`ready` and `lookup` are the policies of a consumer, which `consumer_policy` combines. They take the time as an argument
and do no IO. `event_loop` is the interface to Twisted and asyncio, `link` one connection with IO, `consumer` and
`producer` are the classes for users, written once for both loops.
"""

from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions

__all__ = ["ClientOptions", "Message"]
