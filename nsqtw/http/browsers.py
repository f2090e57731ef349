"""
Requests of web browsers: which are refused because of the page that makes them. The rules of all daemons.

A page on the internet can make the browser of an operator send requests to a daemon that only the operator reaches.
Browsers say so in fields that no client of NSQ sends:

    Origin: https://elsewhere.example          not the host that is asked
    Sec-Fetch-Site: cross-site

The owner of the page may point its name at the daemon's address (DNS rebinding), and then both hosts are the same. So
where a page needs no credential, on a loopback address or without a login, the daemon must be asked by a name that no
such page can have:

    Host: 127.0.0.1:4151, [::1]:4151           an address, which is not looked up
    Host: localhost, nsqd                      a name without a dot: no domain on the internet has one
    Host: broker-1.example.com                 the name of the machine, --broadcast-address, the host listened on
    Host: nsq.example.com                      --allowed-host

Where only this machine can connect, this holds for every client. Elsewhere a client that is no browser could as well
ask by address: the rule is for requests with a field that a page cannot take away from them, and names of private
networks, such as those below `.internal`, are allowed. With TLS the browser has found the name in the certificate, and
to a unix socket no browser connects.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from functools import lru_cache
from threading import Thread
from typing import Protocol

from nsqtw.net.listen import UNIX_PORT, Listener
from nsqtw.options.addresses import host_of, ip_of
from nsqtw.options.broker_address import hostname

Fields = Mapping[bytes, bytes]
"""Header fields by their canonical name."""

HOST_NOT_ALLOWED = "HOST_NOT_ALLOWED"
CROSS_ORIGIN = "CROSS_ORIGIN"
_OF_BROWSERS = (b"Accept-Language", b"Origin", b"Referer", b"Sec-Fetch-Site")
"""A page can give the first another value, and cannot remove it."""
FIELDS = (*_OF_BROWSERS, b"Host", b"Sec-Fetch-Dest", b"Sec-Fetch-Mode", b"X-Forwarded-Host")
"""The fields that the rules are about."""
_SAME_SITE = (b"same-origin", b"none")
_PRIVATE = (".internal", ".local", ".svc")
"""Below these, public name servers know nothing: networks of clouds, local ones, clusters of Kubernetes."""
_REMEMBERED = 256


class HostOptions(Protocol):
    """The options of a daemon that have names of it."""

    http_address: str
    allowed_host: tuple[str, ...]


class AllowedHosts:
    """
    The names by which clients may ask a daemon: `own`, and those of its options. `is_local`: only this machine can
    connect.
    """

    def __init__(self, options: HostOptions, own: Iterable[str], *, is_local: bool) -> None:
        self._options = options
        self._own = {name.lower().rstrip(".") for name in own if name}
        self._is_local = is_local
        self._remembered = lru_cache(_REMEMBERED)(self._is_allowed)

    def learn_full_name(self) -> None:
        """Look the full name of this machine up, in a thread: a name server may take half a minute."""

        def look_up() -> None:
            self._own.add(socket.getfqdn(hostname()).lower())
            self._remembered.cache_clear()

        Thread(target=look_up, name="full name", daemon=True).start()

    def refuse(self, fields: Fields) -> bool:
        """Return whether a request must not be served because of the name by which it asks."""
        host = fields.get(b"Host")
        if not host or not (self._is_local or any(name in fields for name in _OF_BROWSERS)):
            return False
        return not self._remembered(host, self._options.allowed_host)

    def _is_allowed(self, host: bytes, patterns: tuple[str, ...]) -> bool:
        name = host_of(host.decode("latin-1").lower()).rstrip(".")
        return (
            name in self._own
            or ip_of(name) is not None
            or any(_fits(name, pattern.lower()) for pattern in patterns)
            or "." not in name
            or (not self._is_local and name.endswith(_PRIVATE))
        )


def allowed_hosts(options: HostOptions, listener: Listener, *, has_login: bool) -> AllowedHosts | None:
    """
    Return the names by which clients may ask at a listener, None for any. `has_login`: requests need a credential that
    a page does not have.
    """
    if listener.port == UNIX_PORT or (has_login and not listener.is_local):
        return None
    own = (hostname(), host_of(options.http_address), getattr(options, "broadcast_address", ""))
    hosts = AllowedHosts(options, own, is_local=listener.is_local)
    hosts.learn_full_name()
    return hosts


def is_of_another_site(fields: Fields, *, is_change: bool) -> bool:
    """
    Return whether a page of another site makes the browser send a request. A link to a page that only shows something,
    which the user follows, is not such a request.
    """
    site = fields.get(b"Sec-Fetch-Site")
    if site is not None and site.lower() not in _SAME_SITE and (is_change or not _is_visit(fields)):
        return True
    origin = fields.get(b"Origin")
    if origin is None:
        return False
    host = origin.lower().partition(b"://")[2]
    return not host or host not in (fields.get(name, b"").lower() for name in (b"Host", b"X-Forwarded-Host"))


def _is_visit(fields: Fields) -> bool:
    """Return whether a browser wants to show the answer as a page of its own."""
    return (fields.get(b"Sec-Fetch-Mode"), fields.get(b"Sec-Fetch-Dest")) == (b"navigate", b"document")


def _fits(name: str, pattern: str) -> bool:
    """Return whether a name is that of an --allowed-host: `name`, `*.name` for all below it, or `*`."""
    return name.endswith(pattern[1:]) if pattern.startswith("*") else name == pattern
