"""A request's head and body go to the socket together; whatever the socket takes, the bytes stay in order."""

from typing import Any

import pytest
from pyspark_nsq.http.connections import OnePiece

HEAD = [b"POST /mpub HTTP/1.1\r\n", b"Content-Length: 6\r\n", b"\r\n"]
HEAD_BYTES = b"".join(HEAD)
PARTS = (b"a", memoryview(b"bcd"), b"ef")
ALL = HEAD_BYTES + b"abcdef"


class FakeTransport:
    """A connection: its socket, and what Twisted keeps back to send it later."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.broken = False
        self.socket = b""
        self.kept = b""
        self.calls = 0

    def getHandle(self) -> "FakeTransport":
        return self

    def sendmsg(self, pieces: list[bytes | memoryview]) -> int:
        self.calls += 1
        if self.broken:
            raise BrokenPipeError
        if not self.room:
            raise BlockingIOError
        taken = b"".join(pieces)[: self.room]
        self.room -= len(taken)
        self.socket += taken
        return len(taken)

    def write(self, data: bytes) -> None:
        self.kept += data

    def writeSequence(self, pieces: tuple[bytes, ...]) -> None:
        self.kept += b"".join(pieces)

    def loseConnection(self) -> str:
        return "lost"


class FakeReactor:
    def __init__(self, *writers: Any) -> None:
        self.writers = list(writers)

    def getWriters(self) -> list[Any]:
        return self.writers


def send(transport: FakeTransport, reactor: FakeReactor | None = None) -> OnePiece:
    one_piece = OnePiece(reactor or FakeReactor(), transport)
    one_piece.writeSequence(HEAD)
    for part in PARTS:
        one_piece.write(part)
    return one_piece


def test_head_and_body_take_one_call() -> None:
    transport = FakeTransport()
    send(transport)
    assert (transport.calls, transport.socket, transport.kept) == (1, ALL, b"")


@pytest.mark.parametrize("room", range(len(ALL)))
def test_the_transport_sends_what_the_socket_did_not_take(room: int) -> None:
    transport = FakeTransport(room)
    send(transport)
    assert (ALL[:room], ALL[room:]) == (transport.socket, transport.kept)


def test_bytes_that_wait_are_not_overtaken() -> None:
    transport = FakeTransport()
    send(transport, FakeReactor(transport))
    assert (transport.calls, transport.kept) == (0, ALL)


def test_a_broken_socket_is_left_to_the_transport() -> None:
    transport = FakeTransport()
    transport.broken = True
    send(transport)
    assert transport.kept == ALL


def test_what_is_written_to_a_connection_that_is_gone_is_left_to_the_transport() -> None:
    class Gone(FakeTransport):
        def getHandle(self) -> FakeTransport:
            raise AttributeError("socket")

    transport = Gone()
    send(transport)
    assert transport.kept == ALL


def test_where_sockets_cannot_send_pieces_the_transport_sends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeTransport, "sendmsg")
    transport = FakeTransport()
    send(transport)
    assert transport.kept == ALL


def test_a_head_without_a_body_does_not_wait_for_one() -> None:
    transport = FakeTransport()
    OnePiece(FakeReactor(), transport).writeSequence([b"GET /ping HTTP/1.1\r\n", b"\r\n"])
    assert transport.kept == b"GET /ping HTTP/1.1\r\n\r\n"


def test_a_body_of_no_bytes_is_not_waited_for() -> None:
    transport = FakeTransport()
    one_piece = OnePiece(FakeReactor(), transport)
    one_piece.writeSequence([b"POST /topic/create HTTP/1.1\r\n", b"Content-Length: 0\r\n", b"\r\n"])
    assert transport.kept.endswith(b"\r\n\r\n")


def test_the_next_request_has_a_head_of_its_own() -> None:
    transport = FakeTransport()
    one_piece = send(transport)
    one_piece.writeSequence(HEAD)
    for part in PARTS:
        one_piece.write(part)
    assert transport.socket == ALL + ALL


def test_all_else_is_the_transports() -> None:
    assert OnePiece(FakeReactor(), FakeTransport()).loseConnection() == "lost"
