"""
Whether a peer has stopped to read.

What waits for it is what the transport has and what the kernel has and the peer did not take yet. A slow reader takes
something now and then, and is left in peace however long it is behind; one that takes nothing at all holds memory for
nothing.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from typing import Any

from twisted.internet.tcp import Connection as SocketConnection

_COUNT = struct.Struct("i")


class Stall:
    """One connection, looked at now and then."""

    __slots__ = ("_since", "_waiting")

    def __init__(self) -> None:
        self._since = 0.0
        self._waiting = 0

    def lasts(self, transport: Any, now: float) -> float:
        """For how many seconds the peer has taken nothing although something waited for it."""
        waiting, before = unread_bytes(transport), self._waiting
        self._waiting = waiting
        if not waiting or not before or waiting < before:
            self._since = now
        return now - self._since


def unread_bytes(transport: Any) -> int:
    """How many bytes were written to a transport that its peer has not taken."""
    while transport is not None and not isinstance(transport, SocketConnection):
        transport = getattr(transport, "transport", None)  # TLS stands before the socket
    if transport is None:
        return 0
    waiting: int = len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    return waiting + _unread_in_kernel(transport)


def _unread_in_kernel(transport: Any) -> int:
    try:
        count: int = _COUNT.unpack(fcntl.ioctl(transport.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size)))[0]
    except (OSError, ValueError):  # it is closed, or no such kernel
        return 0
    return count
