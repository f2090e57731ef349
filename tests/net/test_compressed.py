"""Compression on a client's connection: pieces, bounds, back-pressure, and streams that are no good."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from nsqtw.core.broker import Broker
from nsqtw.net.tcp import TURN_BYTES, BrokerConnection
from nsqtw.protocols.compression import PIECE_BYTES, Deflate, Snappy
from nsqtw.protocols.v2_session import V2Session
from nsqtw.upgrades import Compression
from tests.http.broker_fixture import Log
from tests.net.test_tcp import Edge, SpyTransport

OK = b"\0\0\0\6\0\0\0\0OK"
KINDS = ["snappy", "deflate"]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def pub(body: bytes) -> bytes:
    return b"PUB t\n" + sized(body)


def nops(size: int) -> bytes:
    """About so many bytes of commands that do nothing, not many of them."""
    return (b"NOP " + b"x" * 4000 + b"\n") * (size // 4000)


class Peer:
    """A client that has negotiated a compression and read its OK."""

    def __init__(self, edge: Edge, kind: str) -> None:
        self.edge = edge
        self.kind = kind
        self.stream: Compression = Snappy() if kind == "snappy" else Deflate(6)
        self.connection: BrokerConnection
        self.transport: SpyTransport
        self.connection, self.transport = edge.connect()
        document = json.dumps({"feature_negotiation": True, kind: True}).encode()
        self.connection.dataReceived(b"  V2IDENTIFY\n" + sized(document))
        edge.settle()
        written = self.transport.value()
        (size,) = struct.unpack_from(">i", written)
        self.transport.clear()
        self.transport.write(written[4 + size :])
        assert self.read() == OK

    def send(self, data: bytes) -> None:
        """Compressed, as one chunk."""
        self.connection.dataReceived(self.stream.compress(data))

    def read(self) -> bytes:
        """All that was written, decompressed."""
        self.stream.feed(self.transport.value())
        self.transport.clear()
        return b"".join(iter(self.stream.read, b""))

    def messages(self) -> int:
        """How many messages the broker has."""
        return sum(topic.message_count for topic in self.edge.broker.topics.values())


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_publishes_and_consumes(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.send(pub(b"hello") + b"SUB t c\nRDY 1\n")
    edge.settle()
    edge.settle()
    frames = peer.read()
    assert frames.startswith(OK + OK)
    assert frames.endswith(b"hello")


@pytest.mark.parametrize("kind", KINDS)
def test_commands_may_come_byte_by_byte(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    for byte in peer.stream.compress(pub(b"hello")):
        peer.connection.dataReceived(bytes([byte]))
    edge.settle()
    assert peer.read() == OK


def test_a_turn_ends_with_one_flush(edge: Edge) -> None:
    peer = Peer(edge, "deflate")
    peer.send(pub(b"a") * 10 + b"NOP\n" + pub(b"b"))
    edge.settle()
    assert peer.transport.value().count(b"\x00\x00\xff\xff") == 1
    assert peer.read() == OK * 11


@pytest.mark.plain  # looks on between the turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_taken_piece_by_piece(edge: Edge, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 MB of commands in a few KB: a turn takes TURN_BYTES of them, and nothing more is read meanwhile."""
    peer = Peer(edge, kind)
    turns: list[int] = []
    sizes = [0]
    take, tick = V2Session.receive_data, Broker.tick

    def receive(session: V2Session, data: bytes, now: float) -> None:
        sizes.append(len(data))
        take(session, data, now)

    def begin_turn(broker: Broker, now: float) -> None:
        turns.append(sum(sizes))
        assert peer.transport.reading == (sum(sizes) >= size)
        tick(broker, now)

    monkeypatch.setattr(V2Session, "receive_data", receive)
    monkeypatch.setattr(Broker, "tick", begin_turn)
    commands = nops(20_000_000)
    size, bomb = len(commands), peer.stream.compress(commands)
    assert len(bomb) < 1_500_000
    peer.connection.dataReceived(bomb)
    edge.turn()
    assert sum(sizes) == size
    assert max(after - before for before, after in zip([0, *turns], turns, strict=False)) <= TURN_BYTES + PIECE_BYTES
    assert max(sizes) <= PIECE_BYTES
    peer.send(pub(b"still here"))
    edge.settle()
    assert peer.read() == OK


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_beyond_the_limit_is_refused_by_its_size(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.send(pub(b"\0" * 50_000_000))
    edge.settle()
    assert b"E_BAD_MESSAGE PUB message too big 50000000 > 1048576" in peer.read()
    assert peer.transport.disconnecting


@pytest.mark.plain  # looks on between the turns
@pytest.mark.parametrize("kind", KINDS)
def test_publishes_in_a_bomb_are_committed_as_they_come(edge: Edge, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(edge, kind)
    waiting: list[int] = []
    commit = Broker.commit

    def watch(broker: Broker, now: float) -> Any:
        waiting.append(sum(topic.message_count for topic in edge.broker.topics.values()))
        return commit(broker, now)

    monkeypatch.setattr(Broker, "commit", watch)
    peer.send(pub(b"\0" * 100_000) * 200)
    while not peer.transport.reading:
        edge.settle()
    edge.settle()
    assert peer.messages() == 200
    assert peer.read() == OK * 200
    assert len(waiting) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_waits_until_the_session_wants_data(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.send(b"SUB t c\n" + nops(PIECE_BYTES) + pub(b"behind"))
    assert not peer.transport.reading
    edge.turn()
    assert peer.messages() == 0  # the channel is not saved yet
    edge.settle()
    edge.settle()
    assert peer.messages() == 1
    assert peer.transport.reading
    assert peer.read() == OK + OK


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_ends_its_side_is_heard_to_the_end(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.send(nops(2 * TURN_BYTES) + pub(b"last"))
    peer.connection.readConnectionLost()
    assert not peer.transport.disconnecting
    for _ in range(5):
        edge.settle()
    assert peer.read() == OK
    assert peer.transport.disconnecting


@pytest.mark.parametrize(
    ("kind", "noise", "text"),
    [
        ("snappy", b"PUB t\n", "snappy: corrupt input"),
        ("snappy", b"\xff\x06\0\0sNaPpY\x01\x05\0\0\0\0\0\0x", "snappy: corrupt input"),
        ("snappy", b"\xff\x06\0\0sNaPpY\x02\x01\0\0x", "snappy: unsupported input"),
        ("deflate", b"PUB t\n", "flate: corrupt input"),
    ],
)
@pytest.mark.parametrize("start", [b"", b"PUB t\n" + sized(b"x" * 100)[:50]])
def test_a_stream_that_is_damaged_ends_like_one_that_is_cut_off(
    edge: Edge, kind: str, noise: bytes, text: str, start: bytes
) -> None:
    peer = Peer(edge, kind)
    if start:
        peer.send(start)
        noise = b"\x01\xff\xff\xff" if kind == "snappy" else b"\xff\xff\xff"
        text = "snappy: unsupported input" if kind == "snappy" else "flate: corrupt input"
    with Log() as lines:
        peer.connection.dataReceived(noise)
        edge.settle()
    assert f"error: client({peer.connection._remote}) - failed to read command - {text}" in lines
    assert peer.transport.disconnecting
    said = peer.read()
    assert said == b"" if not start else said.endswith(b"E_BAD_MESSAGE PUB failed to read message body")
    assert peer.messages() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fatal_error_nothing_more_is_decompressed(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.send(b"BOGUS\n" + nops(12_000_000))
    edge.settle()
    assert b"E_INVALID invalid command BOGUS" in peer.read()
    assert peer.transport.disconnecting
    assert not peer.transport.reading


def test_a_stream_that_says_it_is_over_ends_the_connection_like_any_end(edge: Edge) -> None:
    """gnsq's does so when it closes."""
    peer = Peer(edge, "deflate")
    client = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    with Log() as lines:
        peer.connection.dataReceived(client.compress(pub(b"last")) + client.flush(zlib.Z_FINISH))
        edge.settle()
    assert [line for line in lines if line.startswith("error")] == []
    assert peer.read() == OK
    assert peer.transport.disconnecting


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_for_a_peer_that_does_not_read_goes_on_when_it_does(edge: Edge, kind: str) -> None:
    peer = Peer(edge, kind)
    peer.connection.pauseProducing()
    peer.send(pub(b"x" * 300) * 6000)
    edge.settle()
    assert 1000 < peer.messages() < 6000
    assert not peer.transport.reading
    for _ in range(5):
        peer.connection.resumeProducing()
        edge.settle()
    assert peer.messages() == 6000
    assert peer.transport.reading
