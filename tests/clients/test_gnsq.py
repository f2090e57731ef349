"""
gnsq, for gevent.

gevent brings its own event loop and would like to be everywhere, so the client runs in a process of its own: this
module, with a port, the name of an upgrade and a file of authorities as its arguments. It prints what was delivered.
"""

from __future__ import annotations

import ast
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tests.wire import ANSWER_SECONDS, HEARTBEAT, HOST

if TYPE_CHECKING:
    from gnsq import Consumer, Message, Producer

ROOT = Path(__file__).parent.parent.parent


class UpgradedProducer:
    """
    Publishes over one connection of gnsq's. Its Producer takes the OK to an upgrade for the answer to a publish, and
    ends with a KeyError, whichever the broker is.
    """

    def __init__(self, port: int, features: dict[str, Any]) -> None:
        import gnsq

        self._connection = gnsq.NsqdTCPClient(HOST, port, heartbeat_interval=HEARTBEAT_SECONDS, **features)
        self.on_response = self._connection.on_response

    def start(self) -> None:
        self._connection.connect()
        self._connection.identify()

    def publish(self, topic: str, body: bytes, defer: int | None = None) -> None:
        self._connection.publish(topic, body, defer)
        self.await_response(b"OK")

    def multipublish(self, topic: str, bodies: list[bytes]) -> None:
        self._connection.multipublish(topic, bodies)
        self.await_response(b"OK")

    def await_response(self, wanted: bytes) -> None:
        while self._connection.read_response()[1] != wanted:
            pass

    def close(self) -> None:
        self._connection.close_stream()

    def join(self) -> None:
        """Nothing runs."""


class Clients:
    """A producer, and a consumer of each channel; one for the whole process."""

    def __init__(self, port: int, features: dict[str, Any]) -> None:
        import gnsq
        from gevent.event import Event

        address = f"{HOST}:{port}"
        self.delivered: Deliveries = {channel: [] for channel in CHANNELS}
        self._changed = Event()
        self._alive: set[object] = set()
        self.producer: Producer | UpgradedProducer
        if len(features) > 1:
            self.producer = UpgradedProducer(port, features)
        else:
            self.producer = gnsq.Producer(address, heartbeat_interval=HEARTBEAT_SECONDS)
        self.consumers: list[Consumer] = [
            gnsq.Consumer(TOPIC, channel, address, max_in_flight=10, heartbeat_interval=HEARTBEAT_SECONDS, **features)
            for channel in CHANNELS
        ]
        for client in (self.producer, *self.consumers):
            client.on_response.connect(self._note_response)
        for consumer in self.consumers:
            consumer.on_message.connect(self._handle)
            consumer.start(block=False)
        self.producer.start()

    def close(self) -> None:
        for client in (self.producer, *self.consumers):
            client.close()
            client.join()

    def await_all_but(self, missing: int) -> None:
        """Wait until each consumer lacks only so many deliveries."""
        while any(len(self.delivered[channel]) < len(DELIVERED[channel]) - missing for channel in CHANNELS):
            self._await_change()

    def await_heartbeats(self) -> None:
        if isinstance(self.producer, UpgradedProducer):
            self.producer.await_response(HEARTBEAT)
        while len(self._alive) < 1 + len(self.consumers):
            self._await_change()

    def _await_change(self) -> None:
        self._changed.wait()
        self._changed.clear()

    def _note_response(self, client: object, response: bytes) -> None:
        if response == HEARTBEAT:
            self._alive.add(client)
            self._changed.set()

    def _handle(self, consumer: Consumer, message: Message) -> None:
        self.delivered[consumer.channel].append((message.body, message.attempts))
        self._changed.set()
        message.touch()
        if wants_again(consumer.channel, message.body, message.attempts):
            message.requeue(backoff=False)


def dialogue(port: int, upgrade: str, authority: str) -> Deliveries:
    trust = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": authority}
    clients = Clients(port, {**UPGRADES[upgrade], "tls_options": trust})
    for body in SINGLES:
        clients.producer.publish(TOPIC, body)
    clients.producer.multipublish(TOPIC, MULTIPLE)
    clients.producer.publish(TOPIC, LATER, defer=LATER_MS)
    clients.await_all_but(1)
    clients.await_heartbeats()
    clients.producer.publish(TOPIC, LAST)
    clients.await_all_but(0)
    clients.close()
    return clients.delivered


def test_it_publishes_and_consumes(nsqd: NsqdProcess, upgrade: str, certificates: Certificates) -> None:
    authority = certificates.authority.certificate
    client = subprocess.run(
        [sys.executable, "-m", "tests.clients.test_gnsq", str(nsqd.tcp_port), upgrade, authority],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    assert_all_is_done(nsqd, ast.literal_eval(client.stdout), upgrade)


if __name__ == "__main__":
    print(dialogue(int(sys.argv[1]), *sys.argv[2:]))
