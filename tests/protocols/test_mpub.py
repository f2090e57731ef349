"""The memory of an MPUB: never much more than its bytes, however small its messages and however it comes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.mpub import equal_messages, messages_of
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_codec import V2Codec
from tests.protocols.dialogue import int32, mpub, sized

MB = 1024 * 1024
CHUNK = 256 * 1024


def codec() -> V2Codec:
    return V2Codec(Options(node_id=1), lambda verb, params: None, COMMANDS)


def feed(reader: V2Codec, data: bytes, size: int = CHUNK) -> list[bytes]:
    """The messages of all commands in `data`, which comes in pieces of `size` bytes."""
    found: list[bytes] = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (command := reader.next_command()) is not None:
            found += command[2]
    return found


@contextmanager
def growth(limit: int) -> Iterator[None]:
    """What is done in here leaves at most `limit` bytes behind."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown <= limit, f"{grown} bytes are kept, {limit} may be"


@pytest.mark.parametrize("size", [1, 3, 300])
def test_half_an_mpub_weighs_what_its_bytes_weigh(size: int) -> None:
    count = 2 * MB // (4 + size)
    half = b"MPUB t\n" + int32(4 * MB) + int32(count + 1) + sized(b"x" * size) * count
    reader = codec()
    with growth(len(half) + 200 * 1024 + (41 + 8) * (count if size > 256 else 0)):
        assert feed(reader, half) == []
    assert len(half) - 64 <= reader.pending_bytes <= len(half)
    assert feed(reader, sized(b"last")) == [b"x" * size] * count + [b"last"]
    assert reader.pending_bytes == 0


def test_half_an_mpub_of_unequal_messages_too() -> None:
    messages = [b"x" * (1 + index % 7) for index in range(40_000)]
    whole = mpub(*messages, b"last")
    reader = codec()
    with growth(len(whole) + 200 * 1024):
        assert feed(reader, whole[:-1], 50_000) == []
    assert feed(reader, whole[-1:]) == [*messages, b"last"]


def test_large_and_small_messages_keep_their_order() -> None:
    messages = [b"%d" % index * (1 if index // 100 % 2 else 600) for index in range(1000)]
    assert feed(codec(), mpub(*messages), 20_000) == messages


def test_mpubs_of_many_counts_and_sizes_leave_nothing_behind() -> None:
    bodies = [mpub(*[b"x" * (1 + index % 3)] * (10_000 + index)) for index in range(60)]
    reader = codec()
    with growth(MB):
        for body in bodies:
            feed(reader, body)
    assert reader.pending_bytes == 0


def test_nothing_is_kept_of_what_was_done() -> None:
    reader = codec()
    with growth(64 * 1024):
        feed(reader, mpub(b"x" * MB, b"y" * MB), 4 * MB)
        feed(reader, mpub(b"x" * MB, b"y" * MB) + b"PUB t\n" + int32(100) + b"half", 4 * MB)
    assert reader.pending_bytes == 4
    reader.forget()
    assert reader.pending_bytes == 0


def test_an_mpub_may_not_have_more_in_it_than_a_body_may() -> None:
    """Its total says less, which alone is taken; without a bound it could go on for ever."""
    endless = b"MPUB t\n" + int32(1) + int32(1000) + sized(b"x" * MB) * 5
    with pytest.raises(ClientError) as caught:
        feed(codec(), endless)
    assert str(caught.value) == "E_BAD_BODY MPUB body too big 5242904 > 5242880"


def test_an_mpub_of_equal_messages_may_not_either() -> None:
    with pytest.raises(ClientError) as caught:
        feed(codec(), b"MPUB t\n" + int32(1) + int32(6000) + sized(b"x" * 1000) * 6000)
    assert "MPUB body too big" in str(caught.value)


@given(st.integers(1, 9), st.integers(0, 700), st.integers(0, 700), st.binary(max_size=3), st.integers(0, 5))
def test_equal_messages_are_what_slices_are(size: int, count: int, asked: int, rest: bytes, offset: int) -> None:
    messages = [bytes([index % 251]) * size for index in range(count)]
    buffer = b"-" * offset + b"".join(map(sized, messages)) + rest
    if count:
        assert equal_messages(buffer, offset, min(asked, count), size) == messages[: min(asked, count)]
    assert messages_of(b"".join(map(sized, messages))) == messages


@given(st.lists(st.integers(1, 300), max_size=60))
def test_messages_are_found_again_in_their_bytes(sizes: list[int]) -> None:
    messages = [b"m" * size for size in sizes]
    assert messages_of(b"".join(map(sized, messages))) == messages
