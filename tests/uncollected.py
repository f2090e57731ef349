"""
A daemon without a garbage collector, that says on request which objects it has and which only a collector would free.

    python -m tests.uncollected CONTROL nsqd|nsqlookupd FLAG...

At each connection to the unix socket CONTROL it writes a JSON list of two objects, {type name: count}, and closes it.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from twisted.internet.protocol import Factory, Protocol

from nsqtw.daemon import process
from nsqtw.tap import main_nsqd
from nsqtw.tap_lookupd import main_nsqlookupd

_OF_CONNECTIONS = (
    "nsqtw.net.",
    "nsqtw.lookupd.",
    "nsqtw.protocols.",
    "nsqtw.upgrades.",
    "nsqtw.core.client.",
    "nsqtw.core.consumer.",
    "twisted.internet.tcp.",
    "twisted.web.",
    "OpenSSL.SSL.Connection",
    "_socket.",
)


class _Report(Protocol):
    """One request. It is answered in a turn of its own, when nothing of the turn before is on the stack."""

    transport: Any

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def connectionMade(self) -> None:
        self._reactor.callLater(0, self._answer)

    def _answer(self) -> None:
        self.transport.write(json.dumps([_take_cycles(), _alive()]).encode())
        self.transport.loseConnection()


class _Reports(Factory):
    noisy = False

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def buildProtocol(self, addr: Any) -> Protocol:
        return _Report(self._reactor)


def _name(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"


def _take_cycles() -> dict[str, int]:
    """Return the number of unreachable objects in cycles by type, and free them."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(map(_name, gc.garbage))
    gc.garbage.clear()
    gc.collect()
    return dict(found)


def _alive() -> dict[str, int]:
    """Return the number of objects that may belong to a connection, by type."""
    return dict(Counter(name for name in map(_name, gc.get_objects()) if name.startswith(_OF_CONNECTIONS)))


class _NoGarbage:
    """In the place of `Garbage`: nothing is collected or frozen."""

    control = ""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def start(self) -> None:
        gc.collect()
        gc.disable()
        self._reactor.listenUNIX(self.control, _Reports(self._reactor))


def _main(control: str, name: str, *flags: str) -> NoReturn:
    """Run the daemon `name`."""
    _NoGarbage.control = control
    process.Garbage = _NoGarbage  # type: ignore[assignment,misc]
    sys.argv = [name, *flags]
    sys.exit({"nsqd": main_nsqd, "nsqlookupd": main_nsqlookupd}[name]())


def report(control: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Ask the daemon with this control socket: objects in unreachable cycles, which are freed then, and all others."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(control))
        data = b""
        while piece := connection.recv(65536):
            data += piece
    cycles, alive = json.loads(data)
    return cycles, alive


if __name__ == "__main__":
    _main(*sys.argv[1:])
