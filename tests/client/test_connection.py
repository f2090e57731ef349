"""Dialogues of a connection with an nsqd, without IO."""

from __future__ import annotations

import json
import struct
import zlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.client import commands
from nsqtw.client.connection import Connection, State
from nsqtw.client.frames import FrameReader, InvalidFrame
from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions
from nsqtw.errors import ConnectFailed

OK = b"\0\0\0\x06\0\0\0\0OK"
HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"


class Owner:
    """An owner that does nothing."""

    address = "n:1"

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None: ...
    def touch(self, message: Message) -> None: ...


def response(data: bytes, kind: int = 0) -> bytes:
    return struct.pack(">II", len(data) + 4, kind) + data


def answer(**values: object) -> bytes:
    return response(json.dumps(values).encode())


def message(number: int, body: bytes) -> bytes:
    return response(struct.pack(">qH16s", 7, 1, b"%016d" % number) + body, 2)


def connection(**options: object) -> Connection:
    made = Connection("n:1", ClientOptions(**options))  # type: ignore[arg-type]
    assert made.data_to_send().startswith(b"  V2IDENTIFY\n")
    return made


def test_a_handshake_without_upgrades() -> None:
    made = connection()
    made.receive(answer(max_rdy_count=7, msg_timeout=1500, version="1.3.0"), Owner())
    assert (made.state, made.server.max_rdy_count, made.server.msg_timeout) == (State.READY, 7, 1.5)
    assert made.data_to_send() == b""


def test_a_server_without_negotiation() -> None:
    made = connection()
    made.receive(OK, Owner())
    assert (made.state, made.server.max_rdy_count) == (State.READY, 2500)


def test_auth() -> None:
    made = connection(auth_secret="s")
    made.receive(answer(auth_required=True), Owner())
    assert made.state is State.AUTH
    assert made.data_to_send() == b"AUTH\n\0\0\0\x01s"
    made.receive(answer(identity="me", identity_url="", permission_count=2), Owner())
    assert (made.state, made.server.auth) == (State.READY, ("me", "", 2))


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        (response(b"E_BAD_BODY", 1), "^failed to IDENTIFY - E_BAD_BODY$"),
        (answer(auth_required=True), "^Auth Required$"),
        (answer(snappy=True) + b"\xff\x06\0\0sNaPpY", None),
        (b"HTTP/1.1 400", "^unexpected HTTP response, a nsqd TCP endpoint is required$"),
        (b"\xff\xff\xff\xff\0\0\0\0", "^response msg size is negative: -1$"),
        (response(b"{"), "^invalid JSON in a response"),
    ],
)
def test_handshakes_that_fail(received: bytes, complaint: str | None) -> None:
    made = connection()
    if complaint is None:
        made.receive(received, Owner())
        return
    with pytest.raises(ConnectFailed, match=complaint):
        made.receive(received, Owner())


def test_a_compressed_answer_behind_the_answer_to_identify() -> None:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    made = connection(deflate=True)
    compressed = compressor.compress(OK) + compressor.flush(zlib.Z_SYNC_FLUSH)
    made.receive(answer(deflate=True) + compressed, Owner())
    assert made.state is State.READY
    made.send(commands.rdy(1))
    assert zlib.decompressobj(-15).decompress(made.data_to_send()) == b"RDY 1\n"
    more = compressor.compress(message(1, b"x")) + compressor.flush(zlib.Z_SYNC_FLUSH)
    messages, _ = made.receive(more, Owner())
    assert [found.body for found in messages] == [b"x"]


def test_heartbeats_are_answered() -> None:
    made = connection()
    made.receive(HEARTBEAT + answer(max_rdy_count=1), Owner())
    assert made.data_to_send() == b"NOP\n"
    messages, frames = made.receive(HEARTBEAT + message(1, b"x") + OK, Owner())
    assert (len(messages), [frame.data for frame in frames]) == (1, [b"OK"])
    assert made.data_to_send() == b"NOP\n"


def test_oks_are_counted_at_once() -> None:
    made = connection()
    assert made.count_oks(OK) == 0, "during the handshake"
    made.receive(answer(), Owner())
    assert made.count_oks(OK * 3) == 3
    assert made.count_oks(OK + HEARTBEAT) == 0
    made.receive(OK[:3], Owner())
    assert made.count_oks(OK) == 0, "behind a part of a frame"


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(min_value=1, max_value=50))
def test_frames_are_the_same_however_they_are_split(bodies: list[bytes], step: int) -> None:
    data = b"".join(message(number, body) + (OK if number % 3 == 0 else b"") for number, body in enumerate(bodies))
    reader = FrameReader()
    found: list[Message] = []
    oks = 0
    for start in range(0, len(data), step):
        messages, frames = reader.feed(data[start : start + step], partial(Message, Owner()))
        found += messages
        oks += len(frames)
    assert [one.body for one in found] == bodies
    assert oks == len([number for number in range(len(bodies)) if number % 3 == 0])


@pytest.mark.parametrize("data", [response(b"x", 3), response(b"x" * 25, 2), b"\0\0\0\x03\0\0\0\0", b"HTTP/1.1"])
def test_invalid_frames(data: bytes) -> None:
    with pytest.raises(InvalidFrame):
        FrameReader().feed(data + bytes(40), partial(Message, Owner()))


def test_a_frame_that_is_too_large() -> None:
    with pytest.raises(InvalidFrame, match=r"^response msg size 130 exceeds configured maximum \(100\)$"):
        FrameReader(100).feed(message(1, b"x" * 100), partial(Message, Owner()))


def test_commands() -> None:
    assert commands.pub("t", b"ab") == b"PUB t\n\0\0\0\x02ab"
    assert commands.dpub("t", 1500, b"a") == b"DPUB t 1500\n\0\0\0\x01a"
    assert commands.mpub("t", [b"a", b"bc"]) == b"MPUB t\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc"
    assert (
        commands.sub("t", "c") + commands.rdy(5) + commands.fin(b"1" * 16)
        == b"SUB t c\nRDY 5\nFIN " + b"1" * 16 + b"\n"
    )
    assert commands.req(b"1" * 16, 90) + commands.touch(b"1" * 16) == b"REQ %b 90\nTOUCH %b\n" % (b"1" * 16, b"1" * 16)


def test_an_invalid_frame_ends_the_connection() -> None:
    made = connection()
    made.receive(answer(), Owner())
    assert made.receive(response(b"", 9), Owner()) == ([], [])
    assert str(made.failure) == "invalid frame of type 9 and size 4"
