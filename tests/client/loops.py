"""
The two event loops that the same tests of the client run on. A test leaves nothing behind: no timer, connection,
task, and no error that nobody looked at.
"""

from __future__ import annotations

import asyncio
import gc
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

import nsqtw.client.asyncio
import nsqtw.client.twisted
from nsqtw.client.event_loop import EventLoop
from nsqtw.client.twisted import TwistedLoop
from tests.reactors import close_reactor

TEST_SECONDS = 30.0
"""Time after which a test of an event loop fails."""
_LOOK_AGAIN_SECONDS = 0.01
TURNS = 5
"""Turns of the loop in which what is closed or cancelled disappears."""
_SOON_SECONDS = 0.01
"""Reactors have timers of their own which are that short."""


class Loop(ABC):
    """An event loop, and the classes of the client for it."""

    consumer: Any
    producer: Any
    api: Any

    @abstractmethod
    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test to its end."""

    @abstractmethod
    def sleep(self, seconds: float) -> Awaitable[object]:
        """Wait."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Start a coroutine."""

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition holds."""
        for _ in range(int(TEST_SECONDS / 2 / _LOOK_AGAIN_SECONDS)):
            if condition():
                return
            await self.sleep(_LOOK_AGAIN_SECONDS)
        raise AssertionError(f"not in time: {what}")


class OnAsyncio(Loop):
    """asyncio."""

    consumer = nsqtw.client.asyncio.Consumer
    producer = nsqtw.client.asyncio.Producer
    api = nsqtw.client.asyncio.NsqdApi

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        problems: list[dict[str, Any]] = []

        async def checked() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: problems.append(context))
            async with asyncio.timeout(TEST_SECONDS):
                await test()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            gc.collect()
            left.extend(asyncio.all_tasks() - {asyncio.current_task()})
            inside: Any = loop  # timers and sockets have no public list
            left.extend(timer for timer in inside._scheduled if not timer.cancelled())
            left.extend(key for key in inside._selector.get_map().values() if key.fd != inside._ssock.fileno())

        left: list[object] = []
        asyncio.run(checked())
        assert problems == []
        assert left == [], "a task, timer or connection was left"

    def sleep(self, seconds: float) -> Awaitable[object]:
        return asyncio.sleep(seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.get_running_loop().create_task(coroutine)


class OnTwisted(Loop):
    """A reactor of its own, which only this test uses."""

    def __init__(self) -> None:
        self.reactor: Any = EPollReactor()  # type: ignore[no-untyped-call]
        self.left: list[object] = []
        reactor = self.reactor

        def make_loop(client: object) -> EventLoop:
            return TwistedLoop(reactor)

        own = {"_make_loop": make_loop}
        self.consumer = type("Consumer", (nsqtw.client.twisted.Consumer,), own)
        self.producer = type("Producer", (nsqtw.client.twisted.Producer,), own)
        self.api = type("NsqdApi", (nsqtw.client.twisted.NsqdApi,), own)

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        failures: list[Failure] = []

        def begin() -> None:
            done = Deferred.fromCoroutine(test())
            done.addTimeout(TEST_SECONDS, self.reactor)
            done.addErrback(failures.append)
            done.addBoth(lambda _: look(TURNS))

        def look(turns: int) -> None:
            if turns:
                self.reactor.callLater(0, look, turns - 1)
                return
            now = self.reactor.seconds()
            self.left += [call for call in self.reactor.getDelayedCalls() if call.getTime() > now + _SOON_SECONDS]
            internal = self.reactor._internalReaders
            self.left += [reader for reader in self.reactor.getReaders() if reader not in internal]
            self.left += self.reactor.getWriters()
            self.reactor.stop()

        self.reactor.callWhenRunning(begin)
        self.reactor.run(installSignalHandlers=False)
        if failures:
            failures[0].raiseException()  # type: ignore[no-untyped-call]
        gc.collect()  # reports the errors of Deferreds that nobody looked at
        close_reactor(self.reactor)
        assert self.left == [], "a timer or connection was left"

    def sleep(self, seconds: float) -> Awaitable[object]:
        return deferLater(self.reactor, seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return Deferred.fromCoroutine(coroutine)


LOOPS: dict[str, type[Loop]] = {"asyncio": OnAsyncio, "twisted": OnTwisted}
