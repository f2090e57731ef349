"""The network between one broker and the servers of its store, which the nemesis breaks: a proxy for each server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from tests.wire import HOST

T = TypeVar("T")
_CHUNK = 1 << 16


class Link:
    """Proxies of the servers at `ports` of this machine. Used from any thread; its loop has one of its own."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._thread.start()
        self._is_cut = False
        self._delay = 0.0
        self._requests: asyncio.Event
        self._answers: asyncio.Event
        self._transports: set[asyncio.WriteTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.ports: list[int] = self._call(self._open(ports))
        """Where the broker finds the servers, in the same order."""

    def cut(self) -> None:
        """All connections end, and no new one is made."""
        self._call(self._set(is_cut=True))

    def hold(self, *, requests: bool, answers: bool) -> None:
        """Connections go on, and nothing passes in these directions. It is not lost: `heal` lets it pass."""
        self._call(self._set(requests=requests, answers=answers))

    def slow(self, seconds: float) -> None:
        """Each piece takes so long, in each direction."""
        self._call(self._set(delay=seconds))

    def heal(self, *, resets: bool = False) -> None:
        """All is well. With `resets` the connections end before, and what was held is lost."""
        self._call(self._heal(resets))

    def close(self) -> None:
        """End everything."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the loop

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, ports: Sequence[int]) -> list[int]:
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        await self._set()
        for port in ports:
            self._servers.append(await asyncio.start_server(self._to(port), HOST, 0))
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def _set(
        self, *, is_cut: bool = False, requests: bool = False, answers: bool = False, delay: float = 0.0
    ) -> None:
        self._is_cut, self._delay = is_cut, delay
        for gate, is_held in ((self._requests, requests), (self._answers, answers)):
            if is_held:
                gate.clear()
            else:
                gate.set()
        if is_cut:
            self._reset()

    async def _heal(self, resets: bool) -> None:
        if resets:
            self._reset()
        await self._set()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reset(self) -> None:
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    def _to(self, port: int) -> Any:
        """What is done with a connection to the proxy of a server."""

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._begin(self._forward(port, reader, writer))

        return begin

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._transports.add(writer.transport)
        try:
            server_reader, server_writer = await asyncio.open_connection(HOST, port)
        except OSError:
            writer.transport.abort()
            return
        self._transports.add(server_writer.transport)
        self._begin(self._pass(reader, server_writer, self._requests))
        self._begin(self._pass(server_reader, writer, self._answers))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_CHUNK):
                    await gate.wait()
                    if self._delay:
                        await asyncio.sleep(self._delay)
                    writer.write(data)
                    await writer.drain()
                await gate.wait()  # the end of a connection does not pass either
        finally:
            self._transports.discard(writer.transport)
            writer.close()
