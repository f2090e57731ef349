"""
Fixed pieces of work for a whole broker in this process: real storage, real protocols, no socket and no clock.

The reactor is a `Clock` whose time stands still while work is done, so neither a save nor a heartbeat falls into it.
What a connection writes is collected by a transport that holds it in memory. One piece of work is one turn: bytes come
in on some connections, then the turn ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from nsqtw.api.site import broker_site
from nsqtw.core.group_commit import CommitBatch
from nsqtw.nsqd.build import Parts, assemble, open_storage
from nsqtw.options.broker import Options

from . import v3_wire, wire
from .errors import BrokerFailed

TOPIC, CHANNEL = "work", "channel"
BODY = wire.body(200)
_PEER = IPv4Address("TCP", "127.0.0.1", 40000)
_PATIENCE_SECONDS = 30.0
_MAX_BYTES = 1 << 20
TURNS = 4
"""Turns that a piece of work is made for: one to warm up, and those that are counted."""


class _Reactor(Clock):
    """Keeps what the writer thread sends until somebody does it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: SimpleQueue[Callable[[], Any]] = SimpleQueue()

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.sent.put(partial(call, *arguments))


class _Barrier:
    """A job for the writer thread that does nothing: when it has landed, so has all that was given before."""

    def commit(self, log: Any) -> dict[Any, Any]:
        return {}


class _Transport(StringTransport):
    """A socket that takes everything at once."""

    bufferSize = 0

    def setTcpNoDelay(self, on: bool) -> None: ...

    def setTcpKeepAlive(self, on: bool) -> None: ...


class Connection:
    """One client's end."""

    def __init__(self, factory: Any) -> None:
        self._transport = _Transport(peerAddress=_PEER)  # type: ignore[no-untyped-call]
        self._protocol = factory.buildProtocol(_PEER)
        self._protocol.makeConnection(self._transport)

    def send(self, data: bytes) -> None:
        self._protocol.dataReceived(data)

    def read(self) -> bytes:
        """What the broker wrote since the last time."""
        data: bytes = self._transport.value()  # type: ignore[no-untyped-call]
        self._transport.clear()  # type: ignore[no-untyped-call]
        return data


class Harness:
    """A broker of class `os` on log files in `directory`. Use `open_house` to get one."""

    def __init__(self, directory: Path) -> None:
        options = Options(node_id=1, data_path=str(directory), protocol=("V2", "V3"))
        self._reactor = _Reactor()
        self.parts: Parts = assemble(cast(Any, self._reactor), options, open_storage(options, str(directory)))
        frozen = self.parts.pump.now()
        self.parts.pump.now = lambda: frozen + self._reactor.seconds()  # type: ignore[method-assign]
        self._site = broker_site(
            self.parts.broker, self.parts.pump, tcp_port=1, http_port=2, version_line="nsqd v1.3.0 (built w/bench)"
        )

    def connect(self, greeting: bytes = b"") -> Connection:
        connection = Connection(self.parts.clients)
        connection.send(greeting or wire.identify())
        self.settle()
        connection.read()
        return connection

    def browse(self) -> Connection:
        """A connection over HTTP."""
        return Connection(self._site)

    def turn(self) -> None:
        self._reactor.advance(0)

    def settle(self) -> None:
        """Turns until the writer thread has nothing left to do."""
        broker = self.parts.broker
        busy = True
        while busy:
            self.turn()
            busy = self._land() or bool(broker.checkpointer.are_waited_for or broker.to_commit or broker.to_serve)

    def _land(self) -> bool:
        """Do all that the writer thread was given so far; whether that was anything."""
        done: list[object] = []
        self.parts.writer.commit(cast(CommitBatch, _Barrier()), lambda batch, failed: done.append(batch))
        steps = 0
        while not done:
            self._reactor.sent.get(timeout=_PATIENCE_SECONDS)()
            steps += 1
        return steps > 1


@contextmanager
def open_house() -> Iterator[Harness]:
    with tempfile.TemporaryDirectory(prefix="nsqtw-work-") as directory:
        harness = Harness(Path(directory))
        try:
            harness.connect().send(wire.sub(TOPIC, CHANNEL))
            harness.settle()
            yield harness
        finally:
            harness.parts.writer.close()
            harness.parts.storage.close(clean=False)


@dataclass(frozen=True)
class Work:
    """
    What is counted. `prepare(house)` gives the function that does one turn with `messages` messages, and checks what
    comes back.
    """

    name: str
    title: str
    messages: int
    prepare: Callable[[Harness], Callable[[], None]]


def _publishing(
    connections: int, payload: bytes, answer: bytes, *, over_http: bool = False, greeting: bytes = b""
) -> Callable[[Harness], Callable[[], None]]:
    """Each connection sends `payload` in one chunk and gets exactly one answer, which ends in `answer`."""

    def prepare(harness: Harness) -> Callable[[], None]:
        clients = [harness.browse() if over_http else harness.connect(greeting) for _ in range(connections)]

        def turn() -> None:
            for client in clients:
                client.send(payload)
            harness.turn()
            for client in clients:
                got = client.read()
                if not got.endswith(answer):
                    raise BrokerFailed(f"answered {got!r}")

        return turn

    return prepare


def _consuming(messages: int) -> Callable[[Harness], Callable[[], None]]:
    """So many messages of a backlog go out in one turn, and another takes their FINs, which come in one chunk."""

    def prepare(harness: Harness) -> Callable[[], None]:
        publisher, consumer = harness.connect(), harness.connect()
        for _ in range(TURNS):
            publisher.send(wire.mpub(TOPIC, [BODY] * messages))
            harness.turn()
        consumer.send(wire.sub(TOPIC, CHANNEL))
        harness.settle()
        consumer.read()
        cutter = wire.MessageCutter(len(BODY), _MAX_BYTES)

        def turn() -> None:
            consumer.send(b"RDY %d\n" % messages)
            frames = bytearray()
            while len(frames) < messages * cutter.frame_bytes:
                harness.turn()
                if not (more := consumer.read()):
                    raise BrokerFailed(f"{len(frames)} bytes came of {messages} messages")
                frames += more
            consumer.send(b"RDY 0\n" + cutter.cut(frames, len(frames)).fins)
            harness.turn()

        return turn

    return prepare


def _consuming_v3(messages: int, *, single_fins: bool) -> Callable[[Harness], Callable[[], None]]:
    """As `_consuming`, over V3. The FINs are one range, or a frame for each message."""

    def prepare(harness: Harness) -> Callable[[], None]:
        publisher, consumer = harness.connect(), harness.connect(v3_wire.hello())
        for _ in range(TURNS):
            publisher.send(wire.mpub(TOPIC, [BODY] * messages))
            harness.turn()
        consumer.send(v3_wire.subscribe(TOPIC, CHANNEL, 0))
        harness.settle()
        consumer.read()

        def turn() -> None:
            consumer.send(v3_wire.credit(messages))
            cutter = v3_wire.DeliveryCutter()
            while cutter.count < messages:
                harness.turn()
                if not (more := consumer.read()):
                    raise BrokerFailed(f"{cutter.count} messages came")
                cutter.feed(more)
            fins = cutter.single_fins() if single_fins else cutter.fins()
            consumer.send(v3_wire.credit(0) + fins)
            harness.turn()

        return turn

    return prepare


WORKS = (
    Work("pub-1", "PUB, 1 connection waits for OK", 1, _publishing(1, wire.pub(TOPIC, BODY), b"OK")),
    Work("pub-8", "PUB, 8 connections wait for OK", 8, _publishing(8, wire.pub(TOPIC, BODY), b"OK")),
    Work("pub-pipelined", "100 PUBs in a chunk", 100, _publishing(1, wire.pub(TOPIC, BODY) * 100, b"OK")),
    Work("mpub", "MPUB of 200", 200, _publishing(1, wire.mpub(TOPIC, [BODY] * 200), b"OK")),
    Work("sub", "deliver and FIN", 2000, _consuming(2000)),
    Work(
        "v3-pub-1",
        "V3 PUBLISH, 1 connection waits",
        1,
        _publishing(1, v3_wire.publish(TOPIC, [BODY]), v3_wire.CONFIRMED, greeting=v3_wire.hello()),
    ),
    Work(
        "v3-pub-8",
        "V3 PUBLISH, 8 connections wait",
        8,
        _publishing(8, v3_wire.publish(TOPIC, [BODY]), v3_wire.CONFIRMED, greeting=v3_wire.hello()),
    ),
    Work(
        "v3-pub-pipelined",
        "100 V3 PUBLISHes in a chunk",
        100,
        _publishing(
            1,
            b"".join([v3_wire.publish(TOPIC, [BODY], number) for number in range(100)]),
            v3_wire.confirmed(0, 100),
            greeting=v3_wire.hello(),
        ),
    ),
    Work(
        "v3-mpub",
        "V3 PUBLISH of 200",
        200,
        _publishing(1, v3_wire.publish(TOPIC, [BODY] * 200), v3_wire.CONFIRMED, greeting=v3_wire.hello()),
    ),
    Work("v3-sub", "V3 deliver and FIN of a range", 2000, _consuming_v3(2000, single_fins=False)),
    Work("v3-sub-single", "V3 deliver and single FINs", 2000, _consuming_v3(2000, single_fins=True)),
    Work(
        "http-pub",
        "HTTP /pub, 8 connections wait",
        8,
        _publishing(8, wire.post(f"/pub?topic={TOPIC}", BODY), b"OK", over_http=True),
    ),
    Work(
        "http-mpub",
        "HTTP /mpub of 200, binary",
        200,
        _publishing(
            1,
            wire.post(f"/mpub?topic={TOPIC}&binary=true", wire.message_list([BODY] * 200)),
            b"OK",
            over_http=True,
        ),
    ),
)
