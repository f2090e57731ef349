"""Clients of a broker that is gone, or says what it may not, which is Broken: no socket is left open."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.crash.policies.clients import V2Consumer, V3Connection, V3Consumer, V3Publisher
from tests.crash.promises import Broken
from tests.protocols import v3_frames
from tests.wire import ERROR, HOST, OK, RESPONSE, Client, Closed, Refused, sized


class Peer:
    """Says `said` to each client that connects, and nothing more. `sockets`: those of the clients."""

    tcp_port = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.said = b""
        self.sockets: list[socket.socket] = []
        self._stack = stack
        self._server = stack.enter_context(socket.create_server((HOST, 0)))
        self._connect = socket.create_connection
        monkeypatch.setattr(socket, "create_connection", self._connected)

    def client(self) -> Client:
        return Client(self.tcp_port)

    def _connected(self, address: object, timeout: float) -> socket.socket:
        self.sockets.append(self._stack.enter_context(self._connect(self._server.getsockname(), timeout)))
        connection = self._stack.enter_context(self._server.accept()[0])
        connection.sendall(self.said)
        connection.shutdown(socket.SHUT_WR)
        return self.sockets[-1]


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ExitStack() as stack:
        yield Peer(monkeypatch, stack)


def v2(kind: int, data: bytes) -> bytes:
    return sized(struct.pack(">I", kind) + data)


def error(code: bytes, text: bytes) -> bytes:
    return bytes([len(code)]) + code + struct.pack(">H", len(text)) + text


IDENTIFIED, SUBSCRIBED = v2(RESPONSE, b"{}"), v2(RESPONSE, OK)
REFUSED = v2(ERROR, b"E_INVALID no")
V3_WELCOME, V3_SUBSCRIBED = v3_frames.frame(32, 0, b"{}"), v3_frames.frame(35, 1)
V3_REFUSED = v3_frames.frame(42, 0, error(b"E_INVALID", b"no"))


def consumer_v2(peer: Any) -> V2Consumer:
    return V2Consumer(peer, "t", "c", 1)


def consumer_v3(peer: Any) -> V3Consumer:
    return V3Consumer(peer, "t", "c", 1)


FAILURES: dict[str, tuple[Callable[[Any], object], bytes, type[Exception]]] = {
    "V2: gone before IDENTIFY is answered": (consumer_v2, b"", Closed),
    "V2: gone before SUB is answered": (consumer_v2, IDENTIFIED, Closed),
    "V2: refuses IDENTIFY": (consumer_v2, REFUSED, Refused),
    "V2: refuses SUB": (consumer_v2, IDENTIFIED + REFUSED, Refused),
    "V3: gone before WELCOME": (V3Connection, b"", Closed),
    "V3: refuses HELLO": (V3Connection, V3_REFUSED, Broken),
    "V3: gone before WELCOME to a publisher": (V3Publisher, b"", Closed),
    "V3: gone before WELCOME to a consumer": (consumer_v3, b"", Closed),
    "V3: gone before SUBSCRIBED": (consumer_v3, V3_WELCOME, Closed),
    "V3: refuses SUBSCRIBE": (consumer_v3, V3_WELCOME + V3_REFUSED, Broken),
}


@pytest.mark.parametrize(("construct", "said", "failure"), FAILURES.values(), ids=FAILURES)
def test_a_client_that_cannot_be_made_is_closed(
    peer: Any, construct: Callable[[Any], object], said: bytes, failure: type[Exception]
) -> None:
    peer.said = said
    with pytest.raises(failure):
        construct(peer)
    assert [one.fileno() for one in peer.sockets] == [-1]


def test_a_connection_that_ends_before_the_magic_is_closed(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Client, data: bytes) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Client, "send", send)
    with pytest.raises(BrokenPipeError):
        peer.client()
    assert [one.fileno() for one in peer.sockets] == [-1]


@pytest.mark.parametrize("verb", [b"FIN", b"REQ"])
def test_a_fin_or_req_that_is_refused_is_a_broken_promise(peer: Any, verb: bytes) -> None:
    peer.said = (
        IDENTIFIED + SUBSCRIBED + v2(ERROR, b"E_%b_FAILED %b 0123456789abcdef failed ID not in flight" % (verb, verb))
    )
    with pytest.raises(Broken, match=f"E_{verb.decode()}_FAILED .* not in flight"):
        consumer_v2(peer).next()
    failed = bytes([7]) + error(b"E_%b_FAILED" % verb, b"not in flight") + v3_frames.ranges((1, 1))
    peer.said = V3_WELCOME + V3_SUBSCRIBED + v3_frames.frame(38, 1, failed)
    with pytest.raises(Broken, match=f"E_{verb.decode()}_FAILED.*not in flight"):
        consumer_v3(peer).next()
