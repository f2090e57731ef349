"""asyncnsq, for asyncio. It answers heartbeats without telling anybody: one listens where it does."""

from __future__ import annotations

import asyncio

import asyncnsq
import pytest
from asyncnsq.tcp.connection import TcpConnection
from asyncnsq.tcp.reader import Reader
from asyncnsq.tcp.writer import Writer

from tests.clients.conftest import (
    CHANNELS,
    DELIVERED,
    HEARTBEAT_SECONDS,
    LAST,
    LATER,
    LATER_MS,
    MULTIPLE,
    SINGLES,
    TOPIC,
    UPGRADES,
    Deliveries,
    assert_all_is_done,
    wants_again,
)
from tests.process import NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST


class Heart:
    """Knows whether a connection has answered a heartbeat."""

    def __init__(self, connection: TcpConnection) -> None:
        self.has_beaten = asyncio.Event()
        self._answer = connection._pulse
        connection._pulse = self._beat

    def _beat(self) -> None:
        self._answer()
        self.has_beaten.set()


async def consume(reader: Reader, channel: str, count: int) -> list[tuple[bytes, int]]:
    """The next `count` deliveries."""
    seen: list[tuple[bytes, int]] = []
    messages = reader.messages()
    while len(seen) < count:
        message = await anext(messages)
        seen.append((message.body, message.attempts))
        await message.touch()
        if wants_again(channel, message.body, message.attempts):
            await message.req(0)
        else:
            await message.fin()
    await messages.aclose()
    return seen


async def dialogue(port: int, features: dict[str, bool]) -> Deliveries:
    asked = {"heartbeat_interval": HEARTBEAT_SECONDS * 1000, **features}
    readers: dict[str, Reader] = {}
    for channel in CHANNELS:
        readers[channel] = await asyncnsq.create_reader([f"{HOST}:{port}"], max_in_flight=10, **asked)
        await readers[channel].subscribe(TOPIC, channel)
    writer: Writer = await asyncnsq.create_writer(HOST, port, **asked)
    connections = [writer._conn, *(one for reader in readers.values() for one in reader._connections.values())]
    hearts = [Heart(connection) for connection in connections]
    for body in SINGLES:
        assert await writer.pub(TOPIC, body) == b"OK"
    assert await writer.mpub(TOPIC, *MULTIPLE) == b"OK"
    assert await writer.dpub(TOPIC, LATER_MS, LATER) == b"OK"
    delivered = {
        channel: await consume(reader, channel, len(DELIVERED[channel]) - 1) for channel, reader in readers.items()
    }
    for heart in hearts:
        await heart.has_beaten.wait()
    assert await writer.pub(TOPIC, LAST) == b"OK"
    for channel, reader in readers.items():
        delivered[channel] += await consume(reader, channel, 1)
    for client in (writer, *readers.values()):
        client.close()
    return delivered


@pytest.mark.parametrize("upgrade", ["plain", "snappy", "deflate"])
def test_it_publishes_and_consumes(nsqd: NsqdProcess, upgrade: str) -> None:
    features = UPGRADES[upgrade]
    delivered = asyncio.run(asyncio.wait_for(dialogue(nsqd.tcp_port, features), ANSWER_SECONDS))
    assert_all_is_done(nsqd, delivered, upgrade)
