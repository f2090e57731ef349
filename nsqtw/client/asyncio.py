"""Consumers and producers on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from txaio import aio

from nsqtw.client.consumer import BaseConsumer
from nsqtw.client.event_loop import EventLoop, Receiver, Transport
from nsqtw.client.lookup import host_and_port
from nsqtw.client.nsqd_api import BaseNsqdApi
from nsqtw.client.producer import BaseProducer

T = TypeVar("T")

_tasks: set[asyncio.Task[Any]] = set()
"""The running coroutines."""


class _Protocol(asyncio.Protocol):
    """Passes events of a transport on to a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._receiver.connected(cast(Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._receiver.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.lost("EOF" if error is None else str(error))


class AsyncioLoop(EventLoop):
    """The running loop of asyncio, taken when it is first needed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(aio.with_config(self._loop), aio.make_logger)  # type: ignore[no-untyped-call]

    def future(self) -> asyncio.Future[Any]:
        # As txaio does it, with two calls less: a future is a third of a publish.
        return self._loop.create_future()

    def resolve(self, future: asyncio.Future[Any], value: Any = None) -> bool:
        if future.done():
            return False
        future.set_result(value)
        return True

    def now(self) -> float:
        return self._loop.time()

    def call_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon(function)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(coroutine)
        _tasks.add(task)  # asyncio itself keeps weak references only
        task.add_done_callback(_tasks.discard)
        return task

    def cancel(self, future: asyncio.Task[Any]) -> None:
        # In the next turn: a task that is cancelled before its first step never runs, and neither does its `finally`.
        self._loop.call_soon(future.cancel)

    def must_end(self, error: BaseException) -> bool:
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        return is_cancelled or isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))

    async def connect(self, host: str, port: int, receiver: Receiver, timeout: float, source: str) -> None:
        local = host_and_port(source) if source else None
        try:
            async with asyncio.timeout(timeout):
                await self._loop.create_connection(lambda: _Protocol(receiver), host, port, local_addr=local)
        except TimeoutError as error:
            raise TimeoutError("i/o timeout") from error


class Consumer(BaseConsumer):
    """A consumer on asyncio; see `BaseConsumer`. Create it while the loop runs."""

    def _make_loop(self) -> EventLoop:
        return AsyncioLoop()


class Producer(BaseProducer):
    """A producer on asyncio; see `BaseProducer`. Create it while the loop runs."""

    def _make_loop(self) -> EventLoop:
        return AsyncioLoop()


class NsqdApi(BaseNsqdApi):
    """The HTTP API of an nsqd on asyncio; see `BaseNsqdApi`."""

    def _make_loop(self) -> EventLoop:
        return AsyncioLoop()
