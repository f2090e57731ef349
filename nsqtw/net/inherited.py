"""
Listening sockets that the service manager has bound, and passes to a daemon (systemd.socket(5)).

A socket belongs to the address of the options that

    its name says     FileDescriptorName=tcp, http or https
    it is bound to    else: the one with the same port

What no socket belongs to, the daemon binds itself. Clients that come while the daemon is down or starts wait in the
socket, and a restart refuses none.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping

from twisted.python.systemd import ListenFDs

from nsqtw.errors import OptionError
from nsqtw.options.addresses import split_host_port


class InheritedSockets:
    """The sockets of this process that no listener has taken yet, each with its name."""

    def __init__(self, sockets: list[tuple[str, socket.socket]]) -> None:
        self._sockets = sockets

    @classmethod
    def of_process(cls, environment: Mapping[str, str] = os.environ) -> InheritedSockets:
        """Return those that the environment speaks of. OptionError for one that is no listening TCP socket."""
        descriptors = ListenFDs.fromEnvironment(environment).inheritedDescriptors() or _taken_by_twisted()
        names = environment.get("LISTEN_FDNAMES", "").split(":")
        return cls([(name, _listening(number)) for name, number in zip(names, descriptors, strict=False)])

    def take(self, name: str, address: str) -> socket.socket | None:
        """Return the socket for the listener `name`, whose option has this address; None without one."""
        named = [entry for entry in self._sockets if entry[0] == name]
        others = [entry for entry in self._sockets if entry[0] not in ("tcp", "http", "https")]
        found = next(iter(named or [entry for entry in others if _port(entry[1]) == _wanted_port(address)]), None)
        if found is None:
            return None
        self._sockets.remove(found)
        return found[1]

    def check_all_taken(self, addresses: Mapping[str, str]) -> None:
        """OptionError when one is left."""
        for name, one in self._sockets:
            wanted = ", ".join(f"--{listener}-address={address}" for listener, address in addresses.items())
            raise OptionError(
                f"the service manager passes a socket on port {_port(one)} ({name}), which is for none of {wanted}"
            )


def _taken_by_twisted() -> list[int]:
    """
    Return the descriptors that Twisted's endpoints hold. Their module, when it is imported, removes the variables from
    the environment; twistd and HTTP clients import it.
    """
    endpoints = sys.modules.get("twisted.internet.endpoints")
    return [] if endpoints is None else endpoints._SystemdParser._sddaemon.inheritedDescriptors()


def _listening(descriptor: int) -> socket.socket:
    """The listening TCP socket with this number. OptionError."""
    try:
        one = socket.socket(fileno=descriptor)
        is_listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    except OSError as failure:
        raise OptionError(f"the service manager passes descriptor {descriptor}, which is no socket") from failure
    if one.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        raise OptionError(f"the service manager passes descriptor {descriptor}, which is no listening TCP socket")
    one.set_inheritable(False)
    return one


def _port(one: socket.socket) -> int:
    port: int = one.getsockname()[1]
    return port


def _wanted_port(address: str) -> int:
    """The port of an address; -1 for one that has none, as a unix socket."""
    parts = split_host_port(address)
    return int(parts[1]) if parts is not None and parts[1].isdigit() else -1
