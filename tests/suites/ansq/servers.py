"""The servers that ansq's tests ask for: its package brings the tests, and not the fixtures they use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

HOST = "127.0.0.1"
ANSWER_SECONDS = 20.0
LOOK_AGAIN_SECONDS = 0.02

Create = Callable[..., AbstractAsyncContextManager["Server"]]


class Server:
    """A program of NSQ's, which can be killed and started again on its ports."""

    def __init__(self, program: str, port: int, http_port: int, *flags: str) -> None:
        self.host, self.port, self.http_port = HOST, port, http_port
        self.tcp_address, self.http_address = f"{HOST}:{port}", f"{HOST}:{http_port}"
        self._command = (program, "-tcp-address", self.tcp_address, "-http-address", self.http_address, *flags)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when it answers a ping."""
        self._process = await asyncio.create_subprocess_exec(*self._command)
        await until(self._answers, f"{self._command[0]} answers")

    async def stop(self) -> None:
        """Kill it, if it runs."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _answers(self) -> bool:
        assert self._process is not None and self._process.returncode is None, f"{self._command[0]} ended"
        try:
            reader, writer = await asyncio.open_connection(HOST, self.http_port)
        except OSError:
            return False
        try:
            writer.write(b"GET /ping HTTP/1.0\r\n\r\n")
            return b" 200 " in await reader.readline()
        finally:
            writer.close()


async def until(condition: Callable[[], object], what: str, seconds: float = ANSWER_SECONDS) -> None:
    """Return when the condition, or what it awaits, holds."""
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if asyncio.iscoroutine(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Server]:
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest.fixture
def create_nsqd(tmp_path: Path) -> Create:
    def create(
        port: int = 4150, http_port: int = 4151, lookupd_tcp_addresses: tuple[str, ...] = ()
    ) -> AbstractAsyncContextManager[Server]:
        data_path = tmp_path / f"nsqd-{port}"
        data_path.mkdir()
        flags = ["-data-path", str(data_path), "-broadcast-address", HOST]
        for address in lookupd_tcp_addresses:
            flags += ["-lookupd-tcp-address", address]
        return running(Server("nsqd", port, http_port, *flags))

    return create


@pytest.fixture
def create_nsqlookupd() -> Create:
    return lambda port=4160, http_port=4161: running(Server("nsqlookupd", port, http_port))


@pytest.fixture
async def nsqd(create_nsqd: Create) -> AsyncIterator[Server]:
    async with create_nsqd() as server:
        yield server


@pytest.fixture
def wait_for() -> Callable[..., object]:
    return lambda condition: until(condition, "the condition of the test")
