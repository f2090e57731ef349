"""A daemon as a child process: its addresses when it is ready, its last log lines, and its end."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from nsqtw.errors import CommandError
from nsqtw.runtime.reactor import Reactor

KEPT_LINES = 10
_FLAG_LINES = 2
"""The lines of a daemon with a wrong flag: what is wrong, and where the flags are listed."""
_START = "from nsqtw.cli.child_main import main; main()"
_LISTENING = re.compile(r"\b(TCP|HTTP): listening on (\S+)")
_FATAL = re.compile(r"\b(?:FATAL|ERROR): (?P<text>.*)")


class Child(ProcessProtocol):
    """
    A daemon. `listeners` are the kinds of addresses (TCP, HTTP) that it listens on when it is ready; `on_line` gets
    each line of its log.
    """

    def __init__(
        self, reactor: Reactor, name: str, function: str, flags: Sequence[str], listeners: Sequence[str],
        on_line: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.addresses: dict[str, str] = {}
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.exit_text = ""
        """The end in words, empty while it runs."""
        self.signal = ""
        """The name of the signal that ended it, empty for none."""
        self._reactor = reactor
        self._listeners = listeners
        self._on_line = on_line
        self._rest = b""
        self._ready: Deferred[None] = Deferred()
        self._waiting_for_end: list[Deferred[None]] = []
        words = [sys.executable, "-c", _START, function, str(os.getpid()), *flags]
        IReactorProcess(reactor).spawnProcess(self, sys.executable, words, env=None, childFDs={0: "w", 1: "r", 2: "r"})

    def ready(self) -> Deferred[None]:
        """Wait until it listens. CommandError when it ends before."""
        return self._ready

    def ended(self) -> Deferred[None]:
        """Wait for its end. The wait may be cancelled."""
        done: Deferred[None] = Deferred()
        if self.exit_text:
            done.callback(None)
        else:
            self._waiting_for_end.append(done)
        return done

    async def stop(self, seconds: float) -> None:
        """End it with SIGTERM, and after so many seconds with SIGKILL."""
        if self.exit_text:
            return
        self._signal(signal.SIGTERM)
        timer = self._reactor.callLater(seconds, self._signal, signal.SIGKILL)
        await self.ended()
        if timer.active():
            timer.cancel()

    @property
    def cause(self) -> str:
        """The last error in its log; without one its last line, or the first of what it says of a wrong flag."""
        errors = [match["text"] for match in map(_FATAL.search, self.lines) if match]
        if errors:
            return errors[-1]
        if not self.lines:
            return "no output"
        return self.lines[0 if len(self.lines) <= _FLAG_LINES else -1]

    # -- from Twisted

    def connectionMade(self) -> None:
        """ProcessProtocol API"""
        self.transport.closeStdin()  # type: ignore[union-attr]

    def outReceived(self, data: bytes) -> None:
        """ProcessProtocol API"""
        self.errReceived(data)

    def errReceived(self, data: bytes) -> None:
        """ProcessProtocol API"""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._received(line.decode("utf-8", "replace"))

    def processEnded(self, reason: Failure) -> None:
        """ProcessProtocol API"""
        if self._rest:
            self._received(self._rest.decode("utf-8", "replace"))
        value: Any = reason.value
        if value.signal is not None:
            self.signal = signal.Signals(value.signal).name
            self.exit_text = f"was ended by {self.signal}"
        else:
            self.exit_text = f"ended with exit code {value.exitCode}"
        if not self._ready.called:
            self._ready.errback(CommandError(f"{self.name} does not start: {self.cause}"))
        waiting, self._waiting_for_end = self._waiting_for_end, []
        for done in waiting:
            if not done.called:
                done.callback(None)

    def _received(self, line: str) -> None:
        self.lines.append(line)
        self._on_line(self.name, line)
        match = _LISTENING.search(line)
        if match is None:
            return
        self.addresses.setdefault(match[1], match[2])
        if not self._ready.called and all(kind in self.addresses for kind in self._listeners):
            self._ready.callback(None)

    def _signal(self, number: signal.Signals) -> None:
        try:
            self.transport.signalProcess(number.name.removeprefix("SIG"))  # type: ignore[union-attr]
        except ProcessExitedAlready:
            pass
