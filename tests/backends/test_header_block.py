"""The header block, byte by byte, and what is left of a damaged one."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.backends.header_block import (
    TRAILER_BYTES,
    checked_headers,
    decode_trailer,
    encode_block,
    has_block,
    segment_of,
)
from nsqtw.core.segment import Segment
from nsqtw.message_headers import encode_headers
from nsqtw.testing.contracts import make_segment, make_segment_with_headers


def test_the_bytes_of_a_block() -> None:
    segment = Segment(7, 2, 0, b"frames", [b"", encode_headers({"a": "b"})], "c")
    headers = bytes.fromhex("0000 0005 01 61 0001 62")
    trailer = (len(headers) + 1 + 20).to_bytes(4, "big") + (1).to_bytes(4, "big")
    trailer += crc32(b"frames").to_bytes(4, "big") + crc32(headers).to_bytes(4, "big")
    assert encode_block(segment) == headers + b"c" + trailer + crc32(b"c" + trailer).to_bytes(4, "big")


def test_a_segment_without_headers_and_channel_has_none() -> None:
    assert not has_block(make_segment(1, 3))
    assert has_block(make_segment_with_headers(1, 3))
    assert has_block(Segment(1, 1, 0, b"frames", None, "c"))


encoded = st.one_of(
    st.just(b""), st.dictionaries(st.from_regex(r"\A[a-z]{1,9}\Z"), st.text("abc é", max_size=40)).map(encode_headers)
)


@given(st.lists(encoded, min_size=1, max_size=30), st.sampled_from(["", "c", "a-b.c#ephemeral", "x" * 64]))
def test_it_gives_the_segment_back(headers: list[bytes], channel: str) -> None:
    frames = make_segment(5, len(headers)).frames
    segment = Segment(5, len(headers), 9, frames, headers, channel)
    found = segment_of(frames + encode_block(segment), 5, len(headers), 9)
    assert found is not None
    assert (found.first, found.count, found.delay_ms, found.frames, found.channel) == (
        5,
        len(headers),
        9,
        frames,
        channel,
    )
    assert found.headers == (headers if any(headers) else None)


@pytest.mark.parametrize("channel", ["", "channel"])
def test_damage_of_any_byte_shows(channel: str) -> None:
    """Damage before the trailer and the channel's name leaves the channel known."""
    segment = make_segment_with_headers(4, 3, channel=channel)
    payload = segment.frames + encode_block(segment)
    for at in range(len(segment.frames), len(payload)):
        for change in (1, 0x80, 0x5B, 0xFF):
            damaged = bytearray(payload)
            damaged[at] ^= change
            trailer = decode_trailer(damaged)
            if at >= len(payload) - TRAILER_BYTES - len(channel):
                assert trailer is None
            else:
                assert trailer is not None and trailer.channel == channel
                assert checked_headers(damaged, trailer, 3) is None


@given(st.binary(max_size=80))
def test_what_is_no_block_is_none(data: bytes) -> None:
    assert segment_of(data, 1, 1, 0) is None


@given(st.integers(0, 200))
def test_a_block_for_another_number_of_messages_is_none(count: int) -> None:
    segment = make_segment_with_headers(4, 3)
    assert (segment_of(segment.frames + encode_block(segment), 4, count, 0) is None) == (count != 3)
