"""
Upgrades of a connection that a session asks for between two writes: TLS or compression from here on.

    out list    [JSON]  StartTls        [OK]  Compress        [OK]  frames ...
    on the wire  plain                  TLS                   compressed in TLS

An upgrade is an item of the list that `IProtocol.data_to_send` returns, always the last one: what the session has to
say after it is asked for once it is done, and goes through the new layer. Until then nothing is read for the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen


@frozen
class Secured:
    """The result of a TLS handshake. Names are those of /stats."""

    version: str
    """`TLS1.3`"""
    cipher_suite: str
    common_name: str
    """The subject CN of the client's certificate; empty without one. Verified only by the policy require-verify."""


@frozen
class StartTls:
    """
    Start TLS here. One of the two is called: `secured` after the handshake; or `failed` with the reason, whose result
    is written without TLS before the connection is closed.
    """

    secured: Callable[[Secured], None]
    failed: Callable[[str], bytes]


class Compression(Protocol):
    """Both directions of one connection's compression."""

    has_ended: bool
    """Whether the peer has ended the compressed stream."""

    def compress(self, data: bytes) -> bytes:
        """`data`, compressed, so that the peer can read all of it."""

    def feed(self, chunk: bytes) -> None:
        """Take what was read."""

    def read(self) -> bytes:
        """
        The next piece of what was fed, of a bounded size; empty when there is none until more is fed. BrokenStream
        when it cannot be decompressed.
        """


@frozen
class Compress:
    """Compress everything from here on, in both directions."""

    compression: Compression


Upgrade = StartTls | Compress
