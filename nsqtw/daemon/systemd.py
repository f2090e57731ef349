"""
Messages to systemd by sd_notify(3), for `Type=notify`.

    READY=1                              everything that was stored is loaded, and the sockets listen
    STATUS=3 topics, 12 connections      for `systemctl status`, now and then
    RELOADING=1, MONOTONIC_USEC=         a reload begins; READY=1 ends it
    STOPPING=1                           the stop begins
    WATCHDOG=1                           at half of WatchdogSec=, from the reactor: a reactor that hangs is killed
    EXTEND_TIMEOUT_USEC=                 again and again, while a start, a drain or a stop takes long

A message is a datagram to the unix socket that NOTIFY_SOCKET names; without it nothing is done here. One that cannot be
sent is dropped: the next one follows.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from nsqtw.runtime.reactor import Reactor

STATUS_SECONDS = 5.0
"""The time between two looks at the status."""
EXTENSION_SECONDS = 30.0
"""How long a start, a drain or a stop may go on without another message."""
_MICRO = 1_000_000


class Notifier:
    """Sends messages to the service manager at `address`, a path, or with `@` a name in the abstract namespace."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def send(self, *assignments: str) -> None:
        """Send assignments such as `READY=1` in one message. From any thread."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)
            except OSError:
                return


def watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return the time in which the service manager wants to hear of this process; 0 for no watchdog."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not text.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(text) / _MICRO


def notifier_of(environment: Mapping[str, str]) -> Notifier | None:
    """Return the notifier of this process; None when no service manager waits for messages."""
    address = environment.get("NOTIFY_SOCKET", "")
    return Notifier(address) if address[:1] in ("/", "@") else None


class Supervision:
    """
    What the service manager is told of one daemon. `status` returns a line about it; `is_ending`, whether it drains.
    """

    def __init__(
        self,
        reactor: Reactor,
        status: Callable[[], str],
        is_ending: Callable[[], bool],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._reactor = reactor
        self._status = status
        self._is_ending = is_ending
        self._notifier = notifier_of(environment)
        self._watchdog_seconds = watchdog_seconds(environment)
        self._is_stopping = False
        self._said = ""
        self._calls: list[Any] = []

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Ask for more time while the daemon starts. A thread does: the start may keep the reactor from turning."""
        if self._notifier is None:
            yield
            return
        over = Event()
        thread = Thread(target=_extend, args=(self._notifier, over), name="nsqtw-start", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def ready(self) -> None:
        """Report readiness and begin to send status and watchdog."""
        if self._notifier is None:
            return
        self._said = self._status()
        self._notifier.send("READY=1", f"STATUS={self._said}")
        self._repeat(STATUS_SECONDS, self._tell_status)
        if self._watchdog_seconds:
            self._notifier.send("WATCHDOG=1")
            self._repeat(self._watchdog_seconds / 2, self._tell_alive)

    def draining(self) -> None:
        if self._notifier is not None:
            self._tell_status()

    @contextmanager
    def reloading(self) -> Iterator[None]:
        if self._notifier is None:
            yield
            return
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={now_us}")
        try:
            yield
        finally:
            self._notifier.send("READY=1", f"STATUS={self._status()}")

    def stopping(self) -> None:
        """Report the stop. Messages go on until `close`."""
        self._is_stopping = True
        if self._notifier is not None:
            self._notifier.send("STOPPING=1", _extension())

    def close(self) -> None:
        """Send nothing more."""
        for call in self._calls:
            if call.active():
                call.cancel()
        self._calls.clear()

    # -- inside

    def _tell_status(self) -> None:
        """Tell the status when it has changed, and ask for more time when the daemon ends."""
        assert self._notifier is not None
        status = self._status()
        extension = [_extension()] if self._is_stopping or self._is_ending() else []
        if status != self._said or extension:
            self._said = status
            self._notifier.send(f"STATUS={status}", *extension)

    def _tell_alive(self) -> None:
        assert self._notifier is not None
        self._notifier.send("WATCHDOG=1")

    def _repeat(self, seconds: float, tell: Callable[[], None]) -> None:
        """Call `tell` every so often."""
        index = len(self._calls)

        def again() -> None:
            self._calls[index] = self._reactor.callLater(seconds, again)
            tell()

        self._calls.append(self._reactor.callLater(seconds, again))


def _extend(notifier: Notifier, over: Event) -> None:
    """Ask for more time until it is `over`. The first time is what the unit allows."""
    while not over.wait(STATUS_SECONDS):
        notifier.send(_extension(), "STATUS=starting: loading what is stored")


def _extension() -> str:
    return f"EXTEND_TIMEOUT_USEC={round(EXTENSION_SECONDS * _MICRO)}"
