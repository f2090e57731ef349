"""Connections to HTTP servers, which are kept from task to task and written to in few system calls.

    Agent --URI--> _Endpoints --> endpoint, with TLS for https
                       |
                       +--------> _OnePieceEndpoint, for http: its connections write through a OnePiece

Twisted's transport copies a request's head and body into one buffer, waits for the next turn of the reactor, and then
sends 128 KiB a turn: nine turns for a body of 1 MiB, and each of them runs Python whose code and data the body has
removed from the CPU's caches. `OnePiece` writes the head and all parts of a body to the socket in one call, without a
copy; Twisted sends the rest that the socket does not accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from pyspark_nsq.http.client import Part
from pyspark_nsq.http.kept_connections import AT_LEAST_ONCE, KeptConnections
from pyspark_nsq.http.tls import HttpsPolicy
from pyspark_nsq.options.security import Security

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

#: Servers commonly close connections that were idle for 60 s.
_IDLE_SECONDS = 30


class Connections(NamedTuple):
    """The pool of connections with one security, and the policy by which new ones check the server."""

    pool: KeptConnections
    policy: HttpsPolicy


#: The connections of this process, kept from task to task.
_connections: dict[Security, Connections] = {}


def shared_connections(reactor: ReactorBase, security: Security) -> Connections:
    """Return the connections of this process. Raises OptionError when a file of `security` cannot be used."""
    known = _connections.get(security)
    if known is None:
        # The sink delivers at least once: a publish that may have been processed can be repeated.
        pool = KeptConnections(reactor, 0, _IDLE_SECONDS, AT_LEAST_ONCE)
        known = _connections[security] = Connections(pool, HttpsPolicy(security))
    return known


@implementer(IAgentEndpointFactory)
class Endpoints:
    """The endpoints of an Agent, made once for each server. Twisted's own encode the host by IDNA for each request."""

    def __init__(self, reactor: ReactorBase, policy: HttpsPolicy, connect_seconds: float) -> None:
        self._reactor = reactor
        self._policy = policy
        self._connect_seconds = connect_seconds
        self._known: dict[tuple[bytes, bytes, int], Any] = {}

    def endpointForURI(self, uri: URI) -> Any:
        place = (uri.scheme, uri.host, uri.port)
        endpoint = self._known.get(place)
        if endpoint is None:
            endpoint = self._known[place] = self._endpoint(*place)
        return endpoint

    def _endpoint(self, scheme: bytes, host: bytes, port: int) -> Any:
        plain = HostnameEndpoint(self._reactor, host.decode("ascii"), port, timeout=self._connect_seconds)
        if scheme == b"https":
            return wrapClientTLS(self._policy.creatorForNetloc(host, port), plain)
        return _OnePieceEndpoint(self._reactor, plain)


@implementer(IStreamClientEndpoint)
class _OnePieceEndpoint:
    """Connects, and puts a `OnePiece` between the protocol and its transport."""

    def __init__(self, reactor: ReactorBase, endpoint: HostnameEndpoint) -> None:
        self._reactor = reactor
        self._endpoint = endpoint

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        def connected(protocol: Any) -> Any:
            protocol.transport = OnePiece(self._reactor, protocol.transport)
            return protocol

        return self._endpoint.connect(factory).addCallback(connected)


class OnePiece:
    """A TCP transport of requests: the head of one waits for all of its body, and both go to the socket in one call.

    `reactor` knows whether earlier bytes still wait in `transport`; they are sent first.
    """

    def __init__(self, reactor: Any, transport: Any) -> None:
        self._reactor = reactor
        self._transport = transport
        self._parts: list[Part] = []
        self._missing_bytes = 0

    def writeSequence(self, lines: Sequence[bytes]) -> None:
        """Keep the head of a request: Twisted writes only heads with this method."""
        lengths = [line.partition(b":")[2] for line in lines if line.startswith(b"Content-Length:")]
        self._missing_bytes = int(lengths[0]) if lengths else 0
        if self._missing_bytes:
            self._parts = [b"".join(lines)]
        else:
            self._transport.writeSequence(lines)

    def write(self, part: Part) -> None:
        """Take a part of the body. With the last one the whole request is sent."""
        self._parts.append(part)
        self._missing_bytes -= len(part)
        if self._missing_bytes > 0:
            return
        parts, self._parts = self._parts, []
        sent = self._send(parts)
        for each in parts:
            if sent < len(each):
                self._transport.write(bytes(each[sent:]))
            sent = max(0, sent - len(each))

    def _send(self, parts: Sequence[Part]) -> int:
        """Send to the socket, and return the number of bytes that it accepted."""
        if self._transport in self._reactor.getWriters():
            return 0
        try:
            return int(self._transport.getHandle().sendmsg(parts))
        except OSError:  # full, or broken, which the transport notices itself
            return 0
        except AttributeError:  # the connection is closed, or sockets have no sendmsg, as on Windows
            return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
