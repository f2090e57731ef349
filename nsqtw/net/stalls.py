"""
Detection of a peer that has stopped to read.

What waits for it is what the transport has and what the kernel has and the peer did not take yet. A slow reader takes
something now and then, and is left in peace however long it is behind; one that takes nothing at all holds memory for
nothing.

How much waits does not tell: of a peer that asks, reads and asks again one answer is always on its way, the same number
of bytes whenever one looks. The kernel counts what the peer of a TCP connection has acknowledged. Where it does not, on
unix sockets, nothing is on its way: what the kernel has the peer has not read.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

from twisted.internet.tcp import Connection as SocketConnection

from nsqtw.runtime.transport import Transport

_COUNT = struct.Struct("i")
_ACKNOWLEDGED = struct.Struct("=120xQ")
"""The field tcpi_bytes_acked in Linux's struct tcp_info."""


class StallDetector:
    """One connection, looked at now and then."""

    __slots__ = ("_since", "_taken", "_waiting")

    def __init__(self) -> None:
        self._since = 0.0
        self._waiting = 0
        self._taken = 0

    @property
    def is_possible(self) -> bool:
        """Whether output waited at the last check: until more is written the peer cannot stall."""
        return self._waiting > 0

    def lasts(self, transport: Transport, now: float) -> float:
        """Return for how many seconds the peer has taken nothing although output waited for it."""
        connection = _socket_below(transport)
        in_kernel = _unread_in_kernel(connection)
        waiting, before = in_kernel + _unsent(connection), self._waiting
        taken, taken_before = _acknowledged(connection), self._taken
        self._waiting, self._taken = waiting, taken
        if not in_kernel or not before or waiting < before or taken > taken_before:
            self._since = now
        return now - self._since


def unread_bytes(transport: Transport) -> int:
    """Return how many bytes were written to a transport that its peer has not taken."""
    connection = _socket_below(transport)
    return _unsent(connection) + _unread_in_kernel(connection)


def _socket_below(transport: object) -> SocketConnection | None:
    """The transport with the socket; None when there is none."""
    while transport is not None and not isinstance(transport, SocketConnection):
        transport = getattr(transport, "transport", None)  # TLS stands before the socket
    return transport


def _unsent(connection: SocketConnection | None) -> int:
    if connection is None:
        return 0
    count: int = len(connection.dataBuffer) - connection.offset + connection._tempDataLen
    return count


def _unread_in_kernel(connection: SocketConnection | None) -> int:
    if connection is None:
        return 0
    try:
        count: int = _COUNT.unpack(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size)))[0]
    except (OSError, ValueError):  # it is closed, or no such kernel
        return 0
    return count


def _acknowledged(connection: SocketConnection | None) -> int:
    """Return the bytes that the peer has acknowledged so far; 0 where the system does not count them."""
    if connection is None:
        return 0
    try:
        info = connection.getHandle().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
        count: int = _ACKNOWLEDGED.unpack(info)[0]
    except (AttributeError, OSError, struct.error):  # no TCP, closed, or no such kernel
        return 0
    return count
