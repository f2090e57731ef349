"""
A client connection with IO: the connection without IO above, a transport of the event loop below.

Output is written once a turn of the loop: all FINs of the messages that a turn handled are one write.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Protocol

from nsqtw.client.connection import Notice
from nsqtw.client.event_loop import EventLoop, Timer, Transport, reason_of
from nsqtw.client.frames import Frame
from nsqtw.client.lookup import host_and_port
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.client.wire import connection_of
from nsqtw.errors import ClientLibraryError, ConnectFailed, OptionError

CLOSE_SECONDS = 5.0
"""Time in which a peer must read what was written before a close. Then the connection is aborted."""


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

    def noticed(self, link: Link, notice: Notice) -> None:
        """The broker said something without being asked."""

    def lost(self, link: Link, reason: str) -> None:
        """The connection is closed, after `ready`."""


class _NoOwner:
    """The owner of messages during the handshake, in which there are none."""

    address = ""

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None: ...
    def touch(self, message: Message) -> None: ...


class Link:
    """
    A connection to the nsqd at `address`. `open` connects, and `close` ends it in every state: after each `open` the
    user is told either `failed`, or `ready` and then `lost`, exactly once.
    """

    def __init__(
        self, loop: EventLoop, address: str, options: ClientOptions, context: ssl.SSLContext | None, user: LinkUser
    ) -> None:
        self._loop = loop
        self._options = options
        self._user = user
        self.address = address
        self.connection = connection_of(address, options, context)
        self._transport: Transport | None = None
        self._owner: MessageOwner = _NoOwner()
        self._last_read = 0.0
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._opening: Any = None
        self._is_ready = False
        """Whether the user was told that the handshake is complete."""
        self._is_closing = False
        self._is_over = False
        """Whether the user was told of the end."""
        self._failure: ClientLibraryError | None = None

    def open(self) -> None:
        """Connect. The user is told the outcome."""
        self._opening = self._loop.spawn(self._open())

    async def _open(self) -> None:
        options = self._options
        try:
            host, port = host_and_port(self.address)
            await self._loop.connect(host, port, self, options.dial_timeout, options.local_addr)
        except OSError as error:
            self._end(f"dial tcp {self.address}: connect: {reason_of(error)}")
        except (OptionError, ValueError) as error:  # an address that an nsqlookupd named may be anything
            self._end(f"dial tcp {self.address}: {error}")
        except GeneratorExit:  # the event loop is gone
            raise
        except BaseException:  # cancelled by `close`
            if self._transport is None:
                self._end("closed while it was opened")
            raise

    # -- from the transport

    def connected(self, transport: Transport) -> None:
        """Receiver API."""
        self._transport = transport
        self._last_read = self._loop.now()
        if self._is_closing:
            transport.abort()
            return
        self._set_timer(self._options.read_timeout, self._check)
        self.flush()

    def received(self, data: bytes) -> None:
        """Receiver API."""
        if self._is_closing and not self._is_ready:
            return
        self._last_read = self._loop.now()
        connection = self.connection
        count = connection.count_oks(data)
        if count:
            self._user.answered_ok(self, count)
            return
        try:
            messages, frames = connection.receive(data, self._owner)
        except ClientLibraryError as error:
            self.fail(error)
            return
        if connection.is_ready and not self._is_ready:
            if messages:
                self.fail(ConnectFailed(self.address, "the nsqd sent a message before it was asked for any"))
                return
            self._is_ready = True
            self._owner = self._user.ready(self)
        if self._is_ready:
            for notice in connection.take_notices():
                self._user.noticed(self, notice)
        if messages or frames:
            self._user.received(self, messages, frames)
        if connection.failure is not None:
            self.fail(connection.failure)
        else:
            self.flush_soon()

    def lost(self, reason: str) -> None:
        """Receiver API."""
        self._transport = None
        self._end(reason)

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
        """Write what is buffered, and close; or stop opening."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._set_timer(CLOSE_SECONDS, self._transport.abort)
        elif self._opening is not None:
            self._loop.cancel(self._opening)

    def fail(self, error: ClientLibraryError) -> None:
        """Close at once, for a reason."""
        self._failure = self._failure or error
        if self._transport is not None:
            self._transport.abort()

    # -- inside

    def _end(self, reason: str) -> None:
        """The connection is closed, or was not opened."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_over:
            return
        self._is_over = True
        if self._is_ready:
            self._user.lost(self, str(self._failure or reason))
        else:
            self._user.failed(self, self._failure or ConnectFailed(self.address, reason))

    def _set_timer(self, seconds: float, function: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, function)

    def _check(self) -> None:
        """Close a connection from which nothing was read for `read_timeout`."""
        left = self._last_read + self._options.read_timeout - self._loop.now()
        if left <= 0:
            self.fail(ClientLibraryError(f"nothing was received for {self._options.read_timeout:g}s"))
        else:
            self._set_timer(left, self._check)
