"""A small client of V3, written from docs/protocol-v3.md, with a broker in a process of its own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process import NsqdProcess
from tests.protocols import v3_frames as v3
from tests.wire import ANSWER_SECONDS, HOST

pytestmark = pytest.mark.process


class Client:
    """One connection. It answers PING by itself."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.send(v3.MAGIC + v3.hello(client_id="page"))
        assert self.receive("WELCOME").id == 0

    def send(self, *frames: bytes) -> None:
        self._connection.sendall(b"".join(frames))

    def receive(self, *names: str) -> v3.Answer:
        """The next frame, which must have one of these names."""
        while True:
            answer = self._next()
            if answer.name == "PING":
                self.send(v3.frame(17, answer.id))
                continue
            assert answer.name in names, answer
            return answer

    def _next(self) -> v3.Answer:
        while len(self._rest) < 4 or len(self._rest) < 4 + struct.unpack_from(">I", self._rest)[0]:
            piece = self._connection.recv(65536)
            assert piece, "the broker closed the connection"
            self._rest += piece
        stop = 4 + struct.unpack_from(">I", self._rest)[0]
        frame, self._rest = self._rest[:stop], self._rest[stop:]
        (answer,) = v3.answers(frame)
        return answer

    def publish(self, count: int) -> None:
        """Publish numbers, one a frame, and wait until all are stored."""
        self.send(*(v3.publish(number, [b"%05d" % number], headers=[{"n": str(number)}]) for number in range(count)))
        missing = set(range(count))
        while missing:
            missing -= set(v3.confirmed([self.receive("CONFIRM")]))

    def take(self, count: int) -> list[v3.Delivered]:
        """Receive so many messages."""
        found: list[v3.Delivered] = []
        while len(found) < count:
            found += v3.messages_of(self.receive("DELIVER"))
        return found


@contextmanager
def speaking(nsqd: NsqdProcess) -> Iterator[Client]:
    with socket.create_connection((HOST, nsqd.tcp_port), ANSWER_SECONDS) as connection:
        yield Client(connection)


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path, "--protocol=V2,V3")
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()


def test_what_is_confirmed_outlives_a_kill(nsqd: NsqdProcess) -> None:
    with speaking(nsqd) as client:
        client.send(v3.subscribe(9, credit=0))
        client.receive("SUBSCRIBED")
        client.publish(1000)
        client.send(v3.credit(9, 300))
        taken = client.take(300)
        client.send(v3.fin(9, (taken[0].id, 100)), v3.ping(5))
        while client.receive("DELIVER", "PONG").name != "PONG":
            pass
        nsqd.store()
        nsqd.kill()
    nsqd.start()
    with speaking(nsqd) as client:
        client.send(v3.subscribe(9, credit=1000))
        client.receive("SUBSCRIBED")
        found = client.take(900)
        assert sorted(message.body for message in found) == [b"%05d" % number for number in range(100, 1000)]
        assert all(message.headers in ({}, {"n": str(int(message.body))}) for message in found)
        client.send(*(v3.fin(9, (message.id, 1)) for message in found), v3.CLOSE)
        assert client.receive("CLOSE").id == 0
    with nsqd.client() as other:
        other.pub("t", b"of V2")
    with speaking(nsqd) as client:
        client.send(v3.subscribe(1))
        client.receive("SUBSCRIBED")
        assert [message.body for message in client.take(1)] == [b"of V2"]


def test_a_drain_is_told_over_the_socket(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "c")
    nsqd.publish("t", [b"x"])
    with speaking(nsqd) as client:
        nsqd.http("POST", "/v2/drain")
        assert b"drains" in client.receive("DRAINING").payload
        client.send(v3.publish(1, [b"y"]))
        assert v3.error_of(client.receive("REJECT").payload)[0] == "E_PUB_FAILED PUB failed draining"
