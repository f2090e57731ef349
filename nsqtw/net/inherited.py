"""
Listening sockets that the service manager has bound, and passes to a daemon (systemd.socket(5)).

A socket belongs to the address of the options that

    its name says     FileDescriptorName=tcp, http or https
    it is bound to    else: the one with the same port

The daemon binds the addresses without such a socket itself. Clients that come while the daemon is down or starts wait
in the socket, and a restart refuses none.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from nsqtw.errors import OptionError
from nsqtw.options.addresses import split_host_port

FIRST = 3
"""The number of the first descriptor."""


class InheritedSockets:
    """The sockets of this process that no listener has taken yet, each with its name."""

    def __init__(self, sockets: list[tuple[str, socket.socket]]) -> None:
        self._sockets = sockets

    @classmethod
    def of_process(cls, environment: Mapping[str, str] | None = None) -> InheritedSockets:
        """
        Return the sockets that the environment of this process speaks of, or another one, as sd_listen_fds(3) does: one
        without a name is `unknown`. OptionError for a descriptor that is no listening TCP socket.
        """
        if environment is None:
            environment = first_environment()
        if environment.get("LISTEN_PID") != str(os.getpid()):
            return cls([])
        count = environment.get("LISTEN_FDS", "")
        numbers = range(FIRST, FIRST + int(count)) if count.isdecimal() else range(0)
        text = environment.get("LISTEN_FDNAMES", "")
        names = text.split(":") if text else []
        names += ["unknown"] * (len(numbers) - len(names))
        return cls([(name, _listening(number)) for name, number in zip(names, numbers, strict=False)])

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


def first_environment() -> dict[str, str]:
    """
    Return the environment that this process was started with. `os.environ` will not do: Twisted's endpoints, which
    twistd and HTTP clients import, take the sockets out of it.
    """
    try:
        text = Path("/proc/self/environ").read_bytes()
    except OSError:  # a system without systemd
        return dict(os.environ)
    pairs = (entry.partition("=") for entry in os.fsdecode(text).split("\0") if entry)
    return {name: value for name, _, value in pairs}


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
