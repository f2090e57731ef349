"""Text form of a client's address."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address

from nsqtw.options.addresses import join_host_port

IPV4_MAPPED = "::ffff:"
"""The prefix of an IPv4 address on an IPv6 socket."""


def address_text(address: Any) -> str:
    """`ip:port`, IPv6 in brackets, unless the client came over IPv4; `@` for a unix socket, whose peer has no name."""
    if isinstance(address, IPv6Address):
        return join_host_port(address.host.removeprefix(IPV4_MAPPED), address.port)
    if isinstance(address, IPv4Address):
        return join_host_port(address.host, address.port)
    return "@"
