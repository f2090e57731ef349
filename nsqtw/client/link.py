"""
A client connection with IO: the connection without IO above, a transport of the event loop below.

Output is written once a turn of the loop: all FINs of the messages that a turn handled are one write.
"""

from __future__ import annotations

import ssl
from typing import Protocol

from nsqtw.client.connection import Connection, State
from nsqtw.client.event_loop import EventLoop, Timer, Transport, reason_of
from nsqtw.client.frames import Frame
from nsqtw.client.lookup import host_and_port
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.errors import ClientLibraryError, ConnectFailed, OptionError


class LinkUser(Protocol):
    """The consumer or producer above a link."""

    def ready(self, link: Link) -> MessageOwner:
        """The handshake is complete. Returns the owner of messages."""

    def failed(self, link: Link, error: ClientLibraryError) -> None:
        """The connection could not be opened, or its handshake failed. Called instead of `ready`."""

    def received(self, link: Link, messages: list[Message], frames: list[Frame]) -> None:
        """Data was received."""

    def answered_ok(self, link: Link, count: int) -> None:
        """The nsqd answered OK `count` times, and nothing else."""

    def lost(self, link: Link, reason: str) -> None:
        """The connection is closed, after `ready`."""


class _NoOwner:
    """The owner of messages during the handshake, in which there are none."""

    address = ""

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> None: ...
    def touch(self, message: Message) -> None: ...


class Link:
    """A connection to the nsqd at `address`. `open` connects."""

    def __init__(
        self, loop: EventLoop, address: str, options: ClientOptions, context: ssl.SSLContext | None, user: LinkUser
    ) -> None:
        self._loop = loop
        self._options = options
        self._user = user
        self.address = address
        self.connection = Connection(address, options, context)
        self._transport: Transport | None = None
        self._owner: MessageOwner = _NoOwner()
        self._last_read = 0.0
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._failure: ClientLibraryError | None = None

    async def open(self) -> None:
        """Connect. The user is told the outcome."""
        options = self._options
        try:
            host, port = host_and_port(self.address)
            await self._loop.connect(host, port, self, options.dial_timeout, options.local_addr)
        except OSError as error:
            text = f"dial tcp {self.address}: connect: {reason_of(error)}"
            self._user.failed(self, ConnectFailed(self.address, text))
        except (OptionError, ValueError) as error:  # an address that an nsqlookupd named may be anything
            self._user.failed(self, ConnectFailed(self.address, f"dial tcp {self.address}: {error}"))

    # -- from the transport

    def connected(self, transport: Transport) -> None:
        """Receiver API."""
        self._transport = transport
        self._last_read = self._loop.now()
        self._timer = self._loop.call_later(self._options.read_timeout, self._check)
        self.flush()

    def received(self, data: bytes) -> None:
        """Receiver API."""
        self._last_read = self._loop.now()
        connection = self.connection
        count = connection.count_oks(data)
        if count:
            self._user.answered_ok(self, count)
            return
        was_ready = connection.state is State.READY
        try:
            messages, frames = connection.receive(data, self._owner)
        except ClientLibraryError as error:
            self.fail(error)
            return
        if connection.state is State.READY and not was_ready:
            self._owner = self._user.ready(self)
        if messages or frames:
            self._user.received(self, messages, frames)
        self.flush_soon()

    def lost(self, reason: str) -> None:
        """Receiver API."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if self.connection.state is State.READY:
            self._user.lost(self, str(self._failure or reason))
        else:
            self._user.failed(self, self._failure or ConnectFailed(self.address, reason))

    # -- from the user

    def flush(self) -> None:
        """Write what is buffered."""
        self._is_scheduled = False
        if self._transport is not None:
            data = self.connection.data_to_send()
            if data:
                self._transport.write(data)

    def flush_soon(self) -> None:
        """Write what is buffered at the end of this turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.flush)

    def close(self) -> None:
        """Write what is buffered, and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def fail(self, error: ClientLibraryError) -> None:
        """Close at once, for a reason."""
        self._failure = error
        if self._transport is not None:
            self._transport.abort()

    def _check(self) -> None:
        """Close a connection from which nothing was read for `read_timeout`."""
        left = self._last_read + self._options.read_timeout - self._loop.now()
        if left <= 0:
            self.fail(ClientLibraryError(f"nothing was received for {self._options.read_timeout:g}s"))
        else:
            self._timer = self._loop.call_later(left, self._check)
