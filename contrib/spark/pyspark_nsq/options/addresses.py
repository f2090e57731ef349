"""Addresses as options hold them: `host:port`, paths of unix sockets, and those of nsqlookupds."""

from __future__ import annotations

import ipaddress
import re
import socket

MAX_PORT = 65535
LOOKED_UP_HOST, LOOKED_UP_SERVICE = "dns://", "dns+srv://"
_MAX_NAME = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_ZONE = re.compile(r"[A-Za-z0-9._-]+")


def split_host_port(address: str) -> tuple[str, str] | None:
    """Host and port of `host:port`, `:port` or `[v6]:port`; None when it is none of these, as in Go."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    return (host, port) if colon else None


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(text: str) -> bool:
    """True for a host name in ASCII, and for an IP address, of IPv6 without brackets and maybe with a zone."""
    if ":" not in text:
        return len(text) <= _MAX_NAME and _NAME.fullmatch(text) is not None
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


def is_port(value: object) -> bool:
    """True for the number of a port that can be connected to."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_PORT


def is_node_address(host: object, *ports: object) -> bool:
    """True for the broadcast address and the ports of a node that can be connected to."""
    return isinstance(host, str) and is_host(host) and all(map(is_port, ports))


def host_of(text: str) -> str:
    """Return the host of a host alone, an IPv6 address with or without brackets among them, or with a port."""
    parts = split_host_port(text)
    return parts[0] if parts is not None else text.strip("[]")


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """
    Return the IP address that a host is, also in a form that only programs in C know (`127.1`), and of one that is
    mapped to IPv6 the IPv4 address. None for a name.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.ip_address(socket.inet_aton(host)) if host.isprintable() and " " not in host else None
        except (OSError, ValueError):
            return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name `localhost`, is this machine's own."""
    name = host.lower().rstrip(".")
    address = ip_of(name)
    return name == "localhost" if address is None else address.is_loopback


def is_unix_path(address: str) -> bool:
    """True for the path of a unix socket. A host name has no slash, so a path may hold a colon."""
    return "/" in address


def is_listen_address(address: str) -> bool:
    """True for what a daemon can listen on: `host:port`, or the path of a unix socket."""
    return is_unix_path(address) or split_host_port(address) is not None


def is_host_port(address: str) -> bool:
    """True for `host:port` with a port that can be connected to. The host may be empty."""
    parts = split_host_port(address)
    if parts is None or is_unix_path(address):
        return False
    return parts[1].isascii() and parts[1].isdecimal() and 0 < int(parts[1]) <= MAX_PORT


def is_lookupd_address(address: str) -> bool:
    """True for `host:port`, `dns://host:port` and `dns+srv://name`."""
    if address.startswith(LOOKED_UP_SERVICE):
        return bool(address.removeprefix(LOOKED_UP_SERVICE).strip("/"))
    return is_host_port(address.removeprefix(LOOKED_UP_HOST))
