"""
The interface between the client and an event loop.

`EventLoop` gives futures, timers and logging through txaio, which has the same functions for Twisted and asyncio. A
subclass adds the three things that txaio leaves out: TCP connections, coroutines, and the clock.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from socket import gaierror
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Future(Protocol[T_co]):
    """A Deferred of Twisted or a future of asyncio. Both can be awaited."""

    def __await__(self) -> Generator[Any, Any, T_co]:
        """Wait for the result."""


class Timer(Protocol):
    """A call in the future."""

    def cancel(self) -> object:
        """Do not call."""


class Transport(Protocol):
    """An open TCP connection."""

    def write(self, data: bytes) -> object:
        """Write, or buffer, `data`."""

    def close(self) -> None:
        """Close after the buffered data is written."""

    def abort(self) -> None:
        """Close at once."""


class Receiver(Protocol):
    """The user of a transport."""

    def connected(self, transport: Transport) -> None:
        """The connection is open."""

    def received(self, data: bytes) -> None:
        """Data was read."""

    def lost(self, reason: str) -> None:
        """The connection is closed. Called once, and only after `connected`."""


class Logger:
    """Log lines of one consumer or producer, each with `prefix`."""

    def __init__(self, log: Any, prefix: str) -> None:
        self._log = log
        self._prefix = prefix

    def info(self, text: str) -> None:
        """Log an expected event."""
        self._log.info("{line}", line=self._prefix + text)

    def warn(self, text: str) -> None:
        """Log a problem that the client handles."""
        self._log.warn("{line}", line=self._prefix + text)

    def error(self, text: str) -> None:
        """Log an error of the application."""
        self._log.error("{line}", line=self._prefix + text)


def reason_of(error: OSError) -> str:
    """Return why a connection could not be opened, in the same words on every event loop."""
    if isinstance(error, gaierror):
        return "no such host"
    return os.strerror(error.errno).lower() if error.errno else str(error)


class EventLoop(ABC):
    """Futures and timers of `txa`, txaio for one loop; `make_logger` is txaio's, too."""

    def __init__(self, txa: Any, make_logger: Callable[[], Any]) -> None:
        self._txa = txa
        self._make_logger = make_logger

    def logger(self, prefix: str) -> Logger:
        """Return a logger whose lines begin with `prefix`."""
        return Logger(self._make_logger(), prefix)

    # -- through txaio

    def future(self) -> Any:
        return self._txa.create_future()

    def resolve(self, future: Any, value: Any = None) -> bool:
        """Complete a future. Returns False for one that was cancelled, which stays so."""
        if self._txa.is_called(future):
            return False
        self._txa.resolve(future, value)
        return True

    def reject(self, future: Any, error: Exception) -> None:
        """Complete a future with an error; one that was cancelled stays so."""
        if not self._txa.is_called(future):
            self._txa.reject(future, error)

    def is_done(self, future: Any) -> bool:
        """Whether a future is complete or cancelled."""
        done: bool = self._txa.is_called(future)
        return done

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call `function` after `seconds`. The timer may be cancelled at any time, also after the call."""
        timer: Timer = self._txa.call_later(seconds, function)
        return timer

    async def next_turn(self) -> None:
        """Let the loop do something else."""
        turn = self.future()
        self.call_soon(partial(self.resolve, turn))
        await turn

    # -- of the loop

    @abstractmethod
    def now(self) -> float:
        """Return the time in seconds of a monotonic clock."""

    @abstractmethod
    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function` in the next turn of the loop."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        """Run a coroutine. Returns a future of its result, which can be cancelled with `cancel`."""

    @abstractmethod
    def cancel(self, future: Any) -> None:
        """Cancel what `spawn` returned."""

    @abstractmethod
    def must_end(self, error: BaseException) -> bool:
        """
        Whether the running coroutine of `spawn` must pass on what it caught, because it is being cancelled or the
        process ends. Otherwise a cancellation is that of something which the coroutine awaited.
        """

    @abstractmethod
    def connect(self, host: str, port: int, receiver: Receiver, timeout: float, source: str) -> Awaitable[None]:
        """Open a TCP connection from `source` (ip:port or ""), and call `receiver.connected`. OSError."""


class Outcome:
    """A result that comes once, for any number of waiters: each has a future of its own."""

    def __init__(self) -> None:
        self._waiters: list[Any] = []
        self.is_known = False
        self._value: Any = None
        self._error: Exception | None = None

    def wait(self, loop: EventLoop) -> Any:
        """Return a future of the result."""
        future = loop.future()
        self._waiters.append(future)
        if self.is_known:
            self._tell(loop)
        return future

    def succeed(self, loop: EventLoop, value: Any) -> None:
        """The result is `value`, unless there is one."""
        if not self.is_known:
            self.is_known, self._value = True, value
            self._tell(loop)

    def fail(self, loop: EventLoop, error: Exception) -> None:
        """The result is an error, unless there is one. Without a waiter it is not reported."""
        if not self.is_known:
            self.is_known, self._error = True, error
            self._tell(loop)

    def _tell(self, loop: EventLoop) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if self._error is not None:
                loop.reject(future, self._error)
            else:
                loop.resolve(future, self._value)
