"""Deflate and snappy: what goes in comes out, in pieces with a bound; what is damaged is found."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import BrokenStream
from nsqtw.protocols.compression import PIECE_BYTES, Deflate, Snappy
from nsqtw.upgrades import Compression

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
OK = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
KINDS = ["snappy", "deflate"]


def make(kind: str) -> Compression:
    return Snappy() if kind == "snappy" else Deflate(6)


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def read_all(compression: Compression, *fed: bytes) -> bytes:
    """Everything in what is fed, looked at after each feeding."""
    found = []
    for data in fed:
        compression.feed(data)
        while piece := compression.read():
            assert len(piece) <= PIECE_BYTES
            found.append(piece)
    return b"".join(found)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """`data` in pieces."""
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(ends)]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_was_written_is_read_however_it_is_cut(kind: str, data: st.DataObject) -> None:
    writes = data.draw(
        st.lists(st.binary(max_size=300) | st.binary(max_size=3).map(lambda part: part * 70_000), max_size=4)
    )
    sender, receiver = make(kind), make(kind)
    wire = b"".join(sender.compress(write) for write in writes)
    pieces = cut(wire, data.draw(st.lists(st.integers(0, 1 << 20), max_size=20)))
    assert read_all(receiver, *pieces) == b"".join(writes)


@pytest.mark.parametrize("kind", KINDS)
def test_each_write_can_be_read_at_once_byte_by_byte(kind: str) -> None:
    sender, receiver = make(kind), make(kind)
    for write in (OK, b"x" * 100, b"y"):
        wire = sender.compress(write)
        assert read_all(receiver, *(wire[at : at + 1] for at in range(len(wire)))) == write


def test_snappy_on_the_wire() -> None:
    """As nsqd's first bytes: the identifier once, and a short reply uncompressed."""
    snappy = Snappy()
    first = snappy.compress(OK)
    assert first[:14] == IDENTIFIER + b"\x01\x0e\x00\x00"
    assert first[18:] == OK
    assert snappy.compress(OK) == first[len(IDENTIFIER) :]


def test_deflate_on_the_wire() -> None:
    """One raw stream with a sync flush for each write; the level is ours."""
    deflate = Deflate(1)
    wire = deflate.compress(OK) + deflate.compress(b"more")
    assert wire.count(b"\x00\x00\xff\xff") == 2
    assert zlib.decompressobj(-zlib.MAX_WBITS).decompress(wire) == OK + b"more"
    text = bytes(random.Random(5).choices(b"abcde", k=20_000))
    assert len(Deflate(9).compress(text)) < len(Deflate(1).compress(text))


def test_deflate_reads_any_level_and_empty_blocks() -> None:
    client = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    wire = b"".join(client.compress(part) + client.flush(zlib.Z_SYNC_FLUSH) for part in (b"", b"a", b"", b"b", b""))
    assert read_all(Deflate(1), wire) == b"ab"


@pytest.mark.parametrize("kind", KINDS)
def test_however_much_a_few_bytes_unfold_a_piece_has_a_bound(kind: str) -> None:
    bomb = b"".join(make(kind).compress(b"\0" * 16 * PIECE_BYTES) for _ in range(1))
    assert len(bomb) < PIECE_BYTES
    assert read_all(make(kind), bomb) == b"\0" * 16 * PIECE_BYTES


def test_snappy_chunks_that_are_passed_over() -> None:
    frames = Snappy().compress(OK)
    padding = chunk(0xFE, b"\0" * 100) + chunk(0x80, b"what is this") + chunk(0xFD, b"")
    assert read_all(Snappy(), IDENTIFIER + padding + IDENTIFIER + frames[len(IDENTIFIER) :] + padding) == OK


def test_snappy_padding_without_end_is_passed_over_quickly() -> None:
    assert read_all(Snappy(), IDENTIFIER + chunk(0xFE, b"") * 60_000) == b""


UNSUPPORTED, CORRUPT = "snappy: unsupported input", "snappy: corrupt input"
BLOCK = bytes(cramjam.snappy.compress_raw(b"x" * 65537))


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"PUB t\n", CORRUPT),
        (chunk(0x01, b"\0\0\0\0a"), CORRUPT),
        (chunk(0xFF, b"sNaPpX"), CORRUPT),
        (chunk(0xFF, b"sNaPp"), CORRUPT),
        (IDENTIFIER + chunk(0x02, b"?"), UNSUPPORTED),
        (IDENTIFIER + b"\x7f\0\0\0", UNSUPPORTED),
        (IDENTIFIER + b"\x00\xff\xff\xff", UNSUPPORTED),
        (IDENTIFIER + b"\x01\xff\xff\x7f", UNSUPPORTED),
        (IDENTIFIER + b"\xfe\xff\xff\xff", UNSUPPORTED),
        (IDENTIFIER + chunk(0x01, b"\0\0\0\0" + b"a"), CORRUPT),
        (IDENTIFIER + chunk(0x01, b"abc"), CORRUPT),
        (IDENTIFIER + chunk(0x01, b"\0\0\0\0" + b"a" * 65537), CORRUPT),
        (IDENTIFIER + chunk(0x00, b"\0\0\0\0" + BLOCK), CORRUPT),
        (IDENTIFIER + chunk(0x00, b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f\0"), CORRUPT),
        (IDENTIFIER + chunk(0x00, b"\0\0\0\0"), CORRUPT),
        (IDENTIFIER + chunk(0x00, b""), CORRUPT),
    ],
)
def test_snappy_that_is_damaged(wire: bytes, text: str) -> None:
    with pytest.raises(BrokenStream, match=f"^{text}$"):
        read_all(Snappy(), wire)


def test_a_head_that_cannot_be_right_is_not_waited_for() -> None:
    """Its 16 MB are not collected first."""
    with pytest.raises(BrokenStream):
        read_all(Snappy(), IDENTIFIER, b"\x00\xff\xff", b"\xff")


@pytest.mark.parametrize("place", range(18, 22))
def test_a_wrong_checksum_is_found(place: int) -> None:
    wire = bytearray(Snappy().compress(OK))
    wire[place] ^= 1
    with pytest.raises(BrokenStream):
        read_all(Snappy(), bytes(wire))


@pytest.mark.parametrize("wire", [b"\xff\xff\xff\xff", b"\x06\x00"])
def test_deflate_that_is_damaged(wire: bytes) -> None:
    with pytest.raises(BrokenStream, match=r"^flate: corrupt input$"):
        read_all(Deflate(6), wire)


def test_a_deflate_stream_that_says_it_is_over_is() -> None:
    client = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflate = Deflate(6)
    deflate.feed(client.compress(b"last") + client.flush(zlib.Z_FINISH))
    assert not deflate.has_ended
    assert deflate.read() == b"last"
    assert (deflate.read(), deflate.has_ended) == (b"", True)


@pytest.mark.parametrize("kind", KINDS)
@given(noise=st.binary(max_size=400), places=st.lists(st.integers(0, 1000), max_size=5), known=st.booleans())
def test_noise_is_read_or_refused(kind: str, noise: bytes, places: list[int], known: bool) -> None:
    start = IDENTIFIER if known and kind == "snappy" else b""
    with suppress(BrokenStream):
        read_all(make(kind), *cut(start + noise, places))
