"""
Addresses a broker listens on: `host:port` for TCP, and the paths of unix sockets, which have a `/`.

Binding and serving are two steps, because a broker binds first, then reads what it has stored, and only then
accepts: clients that come in between wait in the backlog instead of being refused.

No host, `0.0.0.0` and `[::]` all mean every address of the machine, of IPv4 and IPv6, as they do for nsqd. One IPv6
socket serves both; a client that comes over IPv4 has an address such as `::ffff:127.0.0.1` there.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Container, Mapping
from contextlib import ExitStack
from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.unix import Port as UnixPort

from nsqtw.errors import OptionError
from nsqtw.net.inherited import InheritedSockets
from nsqtw.options.addresses import MAX_PORT, is_loopback, is_unix_path, join_host_port, split_host_port
from nsqtw.runtime.reactor import Reactor

BACKLOG = 1024
_EVERYWHERE_IPV6 = "::"
_EVERYWHERE = ("0.0.0.0", _EVERYWHERE_IPV6)
_NUMBER = re.compile(r"[+-]?[0-9]+")
UNIX_MODE = 0o660
"""The mode of a unix socket: user and group of the broker may connect."""
UNIX_PORT = -1
"""The port number of a unix socket, where one is needed."""


class Listener:
    """
    A bound socket. `address` is where it really listens, with the real port for a port 0; `port` is that
    port, or UNIX_PORT; `is_local` says that only this machine can reach it. `bound` is a socket that listens already.
    With `refuses`, clients are refused until `serve`, and do not wait. Raises OptionError when the address cannot be
    had.
    """

    def __init__(self, address: str, bound: socket.socket | None = None, *, refuses: bool = False) -> None:
        try:
            self._socket = bound or _bound_socket(address, refuses)
        except OSError as failure:
            raise OptionError(f"listen ({address}) failed - {failure}") from failure
        self._socket.setblocking(False)
        if self._socket.family == socket.AF_UNIX:
            self.address, self.port = address, UNIX_PORT
            self.is_local = True
        else:
            host, self.port = self._socket.getsockname()[:2]
            self.address = join_host_port(host, self.port)
            self.is_local = is_loopback(host)

    def serve(self, reactor: Reactor, factory: IProtocolFactory) -> IListeningPort:
        """Accept connections from now on. The socket is Twisted's: to stop, stop the port. Called once."""
        port: Any
        if self._socket.family == socket.AF_UNIX:
            # What adoptStreamPort does, but for the mode: it would set 0666, and only its Port can be told another one.
            port = UnixPort._fromListeningDescriptor(reactor, self._socket.fileno(), factory)  # type: ignore[no-untyped-call]
            port.mode = UNIX_MODE
            port.startListening()
        else:
            port = reactor.adoptStreamPort(self._socket.fileno(), self._socket.family, factory)
        # Twisted has set a backlog of 50; a fleet of clients that reconnects at once needs more.
        self._socket.listen(BACKLOG)
        self._socket.close()
        listening: IListeningPort = port
        return listening

    def close(self) -> None:
        """Give the address up without ever serving."""
        self._socket.close()
        if self.port == UNIX_PORT:
            os.unlink(self.address)


def open_listeners(
    addresses: Mapping[str, str], cleanup: ExitStack, refusing: Container[str] = ()
) -> dict[str, Listener]:
    """
    Return a listener for each address that is not empty, by its name: `tcp`, `http` or `https`. Sockets that the
    service manager passes are used, the others bound; of those, the ones in `refusing` refuse clients until they serve.
    `cleanup` closes them. OptionError.
    """
    inherited = InheritedSockets.of_process()
    wanted = {name: address for name, address in addresses.items() if address}
    found: dict[str, Listener] = {}
    for name, address in wanted.items():
        try:
            listener = found[name] = Listener(address, inherited.take(name, address), refuses=name in refusing)
        except OptionError as error:
            if not _is_in_use(error):
                raise
            raise OptionError(f"{error}; --{name}-address chooses another") from error
        cleanup.callback(listener.close)
    inherited.check_all_taken(wanted)
    return found


def _is_in_use(error: BaseException | None) -> bool:
    """Return whether an address cannot be had because another process has it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return True
        error = error.__cause__
    return False


def _bound_socket(address: str, refuses: bool) -> socket.socket:
    if not address:
        raise OSError("missing address")
    parts = None if is_unix_path(address) else split_host_port(address)
    if parts is None:
        if not is_unix_path(address):
            raise OSError("missing port: an address is host:port, or the path of a unix socket, which has a /")
        family, where = socket.AF_UNIX, address
    else:
        family, where = _resolve(*parts)
    try:
        return _bind(family, where, refuses)
    except OSError as failure:
        network = "unix" if family == socket.AF_UNIX else "tcp"
        shown = join_host_port(*where[:2]) if parts is not None and parts[0] else address
        reason = (failure.strerror or str(failure)).lower()
        raise OSError(f"listen {network} {shown}: bind: {reason}") from failure


def _bind(family: socket.AddressFamily, where: Any, refuses: bool) -> socket.socket:
    everywhere = family != socket.AF_UNIX and where[0] in _EVERYWHERE and socket.has_dualstack_ipv6()
    if everywhere:
        family, where = socket.AF_INET6, (_EVERYWHERE_IPV6, where[1])
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            # A broker that was killed can be started again on the same port at once.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if everywhere:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(where)
        if family == socket.AF_UNIX:
            # No client can connect before the next line, whatever the umask of the process.
            os.chmod(where, UNIX_MODE)
        if not refuses:
            bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _resolve(host: str, port: str) -> tuple[socket.AddressFamily, Any]:
    """The address to bind, of several an IPv4 one. No host means every one. OSError in Go's words."""
    number = _port_number(port)
    # As text it would be taken for a name in any script, and Python load all it knows of those.
    node = host.encode() if host.isascii() else host
    try:
        addresses = socket.getaddrinfo(node or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as failure:
        unknown = isinstance(failure, socket.gaierror) and failure.errno == socket.EAI_NONAME
        reason = "no such host" if unknown else str(failure)
        raise OSError(f"listen tcp: lookup {host}: {reason}") from failure
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return addresses[0][0], addresses[0][4]


def _port_number(port: str) -> int:
    """A port as a number, or the name of a service; no port means any. OSError in Go's words."""
    if _NUMBER.fullmatch(port or "0"):
        number = int(port or "0")
        if not 0 <= number <= MAX_PORT:
            raise OSError(f"listen tcp: address {port}: invalid port")
        return number
    try:
        return socket.getservbyname(port, "tcp")
    except (OSError, ValueError) as failure:
        raise OSError(f"listen tcp: address tcp/{port}: unknown port") from failure
