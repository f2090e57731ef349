"""ansq, for asyncio."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import ansq
from ansq.tcp.reader import Reader
from ansq.typedefs import TCPResponse

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
    Deliveries,
    assert_all_is_done,
    wants_again,
)
from tests.process import NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST


class Heart:
    """Knows whether a heartbeat has reached its connection."""

    def __init__(self) -> None:
        self.has_beaten = asyncio.Event()
        features = ansq.ConnectionFeatures(heartbeat_interval=HEARTBEAT_SECONDS * 1000)
        self.options = ansq.ConnectionOptions(features=features, auto_reconnect=False, on_heartbeat=self._beat)

    async def _beat(self, connection: object) -> None:
        self.has_beaten.set()


async def consume(reader: Reader, count: int) -> list[tuple[bytes, int]]:
    """The next `count` deliveries."""
    seen: list[tuple[bytes, int]] = []
    while len(seen) < count:
        message = await reader.wait_for_message()
        assert message is not None, "the connection was closed"
        seen.append((message.body, message.attempts))
        await message.touch()
        if wants_again(reader.channel, message.body, message.attempts):
            await message.req(0)
        else:
            await message.fin()
    return seen


def is_ok(answer: TCPResponse) -> bool:
    return answer is not None and answer.is_ok


async def dialogue(port: int) -> Deliveries:
    address = [f"{HOST}:{port}"]
    hearts = [Heart() for _ in range(3)]
    delivered: Deliveries = {}
    async with AsyncExitStack() as stack:
        readers = []
        for channel, heart in zip(CHANNELS, hearts[1:], strict=True):
            reader = await ansq.create_reader(TOPIC, channel, address, connection_options=heart.options)
            stack.push_async_callback(reader.close)
            await reader.connections[0].rdy(10)
            readers.append(reader)
        writer = await ansq.create_writer(address, hearts[0].options)
        stack.push_async_callback(writer.close)
        for body in SINGLES:
            assert is_ok(await writer.pub(TOPIC, body))
        assert is_ok(await writer.mpub(TOPIC, *MULTIPLE))
        assert is_ok(await writer.dpub(TOPIC, LATER, delay_time=LATER_MS))
        for reader in readers:
            delivered[reader.channel] = await consume(reader, len(DELIVERED[reader.channel]) - 1)
        for heart in hearts:
            await heart.has_beaten.wait()
        assert is_ok(await writer.pub(TOPIC, LAST))
        for reader in readers:
            delivered[reader.channel] += await consume(reader, 1)
    return delivered


def test_it_publishes_and_consumes(nsqd: NsqdProcess) -> None:
    delivered = asyncio.run(asyncio.wait_for(dialogue(nsqd.tcp_port), ANSWER_SECONDS))
    assert_all_is_done(nsqd, delivered, "plain")
