"""
The type of a reactor, as this package uses it.

Twisted declares reactors by zope interfaces, of which a reactor provides many at once; a type checker needs one type.
The reactors of Twisted, `TurnReactor` and the reactors of tests have these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import (
    IDelayedCall,
    IHostnameResolver,
    IListeningPort,
    IReactorFromThreads,
    IReactorTime,
)
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer


@implementer(IReactorTime)
class TimeReactor(Protocol):
    """A clock, and calls in the future."""

    def seconds(self) -> float: ...

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall: ...

    def getDelayedCalls(self) -> Sequence[IDelayedCall]: ...


@implementer(IReactorFromThreads)
class Reactor(TimeReactor, Protocol):
    """A whole reactor."""

    @property
    def nameResolver(self) -> IHostnameResolver: ...

    def run(self, installSignalHandlers: bool = True) -> None: ...

    def stop(self) -> None: ...

    def callWhenRunning(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> object: ...

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None: ...

    def getThreadPool(self) -> ThreadPool: ...

    def getReaders(self) -> list[Any]: ...

    def getWriters(self) -> list[Any]: ...

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[..., object], *args: Any) -> object: ...

    def adoptStreamPort(self, descriptor: int, family: int, factory: Any) -> IListeningPort: ...

    def listenUDP(self, port: int, protocol: Any, interface: str = "") -> Any: ...


def stop_once(reactor: Reactor) -> None:
    """Stop a reactor, if that was not asked of it before."""
    with suppress(ReactorNotRunning):
        reactor.stop()
