"""Frames in, commands out."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq import v2_frames as v2
from pyspark_nsq.v2_frames import Frames, Message, NotNsqError, message_of


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(payload), kind) + payload


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=20))), st.integers(1, 30))
def test_frames_come_out_whole_however_they_are_cut(frames: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(frame(*one) for one in frames)
    cutter = Frames()
    found = [one for at in range(0, len(stream), size) for one in cutter.take(stream[at : at + size])]
    assert frames == found


@pytest.mark.parametrize("size", [-1, 0, 3, 1 << 30])
def test_what_is_no_frame(size: int) -> None:
    with pytest.raises(NotNsqError):
        Frames().take(struct.pack(">iI", size + (1 if size == 1 << 30 else 0), 0))


def test_a_message() -> None:
    payload = struct.pack(">qH", 5, 2) + b"0123456789abcdef" + b"body"
    assert Message(5, 2, b"0123456789abcdef", b"body") == message_of(payload)
    with pytest.raises(NotNsqError):
        message_of(payload[:25])


def test_commands() -> None:
    assert b'IDENTIFY\n\x00\x00\x00\x08{"a": 1}' == v2.identify({"a": 1})
    assert b"AUTH\n\x00\x00\x00\x03abc" == v2.auth("abc")
    assert b"SUB t#ephemeral c\n" == v2.sub("t#ephemeral", "c")
    assert b"RDY 5\n" == v2.rdy(5)
    assert b"FIN a\nFIN b\n" == v2.fin([b"a", b"b"])
    assert b"REQ a 0\n" == v2.req([b"a"])
