"""pynsq, for tornado, whose loop is asyncio's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import nsq

from tests.certificates import Certificates
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


class Writer(nsq.Writer):
    """Publishes; knows whether a heartbeat has come."""

    def __init__(self, address: str, features: dict[str, Any]) -> None:
        super().__init__([address], heartbeat_interval=HEARTBEAT_SECONDS, **features)
        self.has_beaten = asyncio.Event()

    def heartbeat(self, conn: nsq.AsyncConn) -> None:
        self.has_beaten.set()

    async def is_connected(self) -> None:
        while not self.conns:
            await asyncio.sleep(0.005)

    async def answer(self, publish: Callable[..., Any], *arguments: Any) -> Any:
        """What the broker answers to a publish."""
        answered = asyncio.get_running_loop().create_future()
        publish(TOPIC, *arguments, callback=lambda conn, data: answered.set_result(data))
        return await answered


class Reader(nsq.Reader):
    """Consumes a channel; knows what came, and whether a heartbeat has."""

    def __init__(self, address: str, channel: str, features: dict[str, Any]) -> None:
        super().__init__(
            TOPIC,
            channel,
            message_handler=self.handle,
            nsqd_tcp_addresses=[address],
            max_in_flight=10,
            heartbeat_interval=HEARTBEAT_SECONDS,
            **features,
        )
        self.has_beaten = asyncio.Event()
        self.seen: list[tuple[bytes, int]] = []
        self._changed = asyncio.Event()

    def heartbeat(self, conn: nsq.AsyncConn) -> None:
        self.has_beaten.set()

    def handle(self, message: nsq.Message) -> bool:
        self.seen.append((message.body, message.attempts))
        self._changed.set()
        message.touch()
        if wants_again(self.channel, message.body, message.attempts):
            message.requeue(backoff=False, delay=0)
        return True

    async def has_seen(self, count: int) -> None:
        while len(self.seen) < count:
            self._changed.clear()
            await self._changed.wait()


async def dialogue(port: int, features: dict[str, Any]) -> Deliveries:
    address = f"{HOST}:{port}"
    readers = [Reader(address, channel, features) for channel in CHANNELS]
    writer = Writer(address, features)
    clients: list[Writer | Reader] = [writer, *readers]
    await writer.is_connected()
    for body in SINGLES:
        assert await writer.answer(writer.pub, body) == b"OK"
    assert await writer.answer(writer.mpub, MULTIPLE) == b"OK"
    assert await writer.answer(writer.dpub, LATER_MS, LATER) == b"OK"
    for reader in readers:
        await reader.has_seen(len(DELIVERED[reader.channel]) - 1)
    for client in clients:
        await client.has_beaten.wait()
    assert await writer.answer(writer.pub, LAST) == b"OK"
    for reader in readers:
        await reader.has_seen(len(DELIVERED[reader.channel]))
    for client in clients:
        for connection in client.conns.values():
            connection.close()
    return {reader.channel: reader.seen for reader in readers}


def test_it_publishes_and_consumes(nsqd: NsqdProcess, upgrade: str, certificates: Certificates) -> None:
    trust = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": certificates.authority.certificate}
    features = {**UPGRADES[upgrade], "tls_options": trust}
    delivered = asyncio.run(asyncio.wait_for(dialogue(nsqd.tcp_port, features), ANSWER_SECONDS))
    assert_all_is_done(nsqd, delivered, upgrade)
