"""
The two protocols of the client library, behind one interface: V2 and V3 (`ClientOptions.protocol`).

    WireCommands     encodes the commands of consumers and producers
    WireConnection   one connection without IO: bytes in, messages and frames out

The policies know these only. What V3 answers becomes the frames of V2: OK, CLOSE_WAIT, and errors.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Protocol

from nsqtw.client import commands
from nsqtw.client.connection import Connection, Notice, Server
from nsqtw.client.frames import Frame
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import V3, ClientOptions
from nsqtw.client.v3_commands import V3Commands
from nsqtw.client.v3_connection import V3Connection
from nsqtw.errors import InvalidResponse, OptionError

Headers = Mapping[str, str]


class WireCommands(Protocol):
    """The commands of a protocol. Those of `nsqtw.client.commands` are V2's."""

    def rdy(self, count: int) -> bytes: ...
    def sub(self, topic: str, channel: str) -> bytes: ...
    def fin(self, message_id: bytes) -> bytes: ...
    def req(self, message_id: bytes, delay_ms: int, reason: str = "") -> bytes: ...
    def touch(self, message_id: bytes) -> bytes: ...
    def close(self) -> bytes: ...
    def pub(self, topic: str, body: bytes) -> bytes: ...
    def publish(
        self, topic: str, bodies: Sequence[bytes], delay_ms: int = 0, headers: Sequence[Headers] | None = None
    ) -> bytes: ...


class WireConnection(Protocol):
    """
    A connection of a protocol. `failure` is why it cannot be used any more, after the handshake. `is_draining`: the
    broker has said that it takes no more publishes.
    """

    address: str
    server: Server
    failure: InvalidResponse | None
    is_draining: bool

    @property
    def is_ready(self) -> bool: ...
    def send(self, command: bytes) -> None: ...
    def data_to_send(self) -> bytes: ...
    def receive(self, data: bytes, owner: MessageOwner) -> tuple[list[Message], list[Frame]]: ...
    def take_notices(self) -> list[Notice]: ...
    def count_oks(self, data: bytes) -> int: ...


class V2Commands:
    rdy = staticmethod(commands.rdy)
    sub = staticmethod(commands.sub)
    fin = staticmethod(commands.fin)
    req = staticmethod(commands.req)
    touch = staticmethod(commands.touch)
    pub = staticmethod(commands.pub)

    def close(self) -> bytes:
        """CLS."""
        return commands.CLS

    def publish(
        self, topic: str, bodies: Sequence[bytes], delay_ms: int = 0, headers: Sequence[Headers] | None = None
    ) -> bytes:
        """PUB, DPUB or MPUB. OptionError for headers, which V2 cannot publish."""
        if headers is not None and any(headers):
            raise OptionError("headers are published over protocol V3: give the producer the option protocol='V3'")
        if len(bodies) == 1:
            return commands.dpub(topic, delay_ms, bodies[0]) if delay_ms else commands.pub(topic, bodies[0])
        return commands.mpub(topic, bodies)


def commands_of(options: ClientOptions) -> WireCommands:
    """Return the commands of the protocol that the options name."""
    return V3Commands(options) if options.protocol == V3 else V2Commands()


def connection_of(address: str, options: ClientOptions, context: ssl.SSLContext | None) -> WireConnection:
    """Return a connection of the protocol that the options name."""
    if options.protocol == V3:
        return V3Connection(address, options, context)
    return Connection(address, options, context)
