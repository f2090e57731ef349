"""
The compression filters: what a peer sends as snappy or deflate, cut anywhere.

The first byte of an input says which of them it is for, and whether the stream begins as a good one does.
"""

from __future__ import annotations

import zlib
from random import Random

from nsqtw.errors import BrokenStream
from nsqtw.protocols.compression import PIECE_BYTES, Deflate, Snappy
from nsqtw.upgrades import Compression
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces
from tests.fuzz.targets.commands import command

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_MAX_BYTES = 64 << 20
"""What an input may unfold to here; a longer one is left at that."""
_SNAPPY, _DEFLATE = 0, 1


class Compressed(Target):
    name = "compressed"
    kind = "snappy and deflate streams, damaged, cut, and unfolding a thousandfold"
    examples = 800
    tokens = (
        *(_IDENTIFIER, b"\xfe\0\0\0", b"\x80\xff\xff\xff", b"\x02\0\0\0", b"\0\xff\xff\0", b"\x01\x08\0\0", b"sNaPpY"),
        *(b"\0\0\xff\xff", b"\x03\0", b"\x01\0\0\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xed\xc1\x01\x01"),
    )
    steps = Bound(20_000, 60)
    memory = Bound(4 << 20, 50)

    def make(self, chance: Random) -> bytes:
        kind = chance.randrange(2)
        writes = [_content(chance) for _ in range(chance.randint(1, 4))]
        stream = _snappy_stream(chance, writes) if kind == _SNAPPY else _deflate_stream(chance, writes)
        return bytes([kind]) + stream

    def run(self, data: bytes) -> str:
        chance = chance_of(data)
        kind = data[0] % 2 if data else _SNAPPY
        stream = data[1:]
        whole = _told(kind, [stream])
        cut = pieces(stream, [chance.randrange(len(stream) + 1) for _ in range(5)])
        found = _told(kind, cut)
        # Where the damage is in what was fed at once, all of that is refused.
        if found[2] != whole[2] or (whole[2] != "refused" and found != whole):
            raise Broken(f"in pieces it is {found}, whole {whole}")
        return whole[2]


def _told(kind: int, cut: list[bytes]) -> tuple[int, int, str]:
    """How many bytes it stands for, their checksum, and how it ended."""
    compression: Compression = Snappy() if kind == _SNAPPY else Deflate(6)
    count = checksum = 0
    try:
        for part in cut:
            compression.feed(part)
            while count < _MAX_BYTES and (piece := compression.read()):
                if len(piece) > PIECE_BYTES:
                    raise Broken(f"a piece of {len(piece)} bytes")
                count += len(piece)
                checksum = zlib.crc32(piece, checksum)
    except BrokenStream as broken:
        return count, checksum, "refused" if str(broken) != "EOF" else "ended"
    return count, checksum, "decompressed" if count else "waits for more"


def _content(chance: Random) -> bytes:
    """Commands, or a great deal of one byte."""
    if chance.random() < 0.2:
        return chance.choice((b"\0", b"ab")) * chance.choice((1, 1 << 16, 1 << 20, 1 << 23))
    return b"".join(command(chance) for _ in range(3))


def _deflate_stream(chance: Random, writes: list[bytes]) -> bytes:
    compressor = zlib.compressobj(chance.choice((0, 1, 6, 9)), zlib.DEFLATED, -zlib.MAX_WBITS)
    flush = chance.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH))
    stream = b"".join(compressor.compress(write) + compressor.flush(flush) for write in writes)
    return stream + (compressor.flush(zlib.Z_FINISH) if chance.random() < 0.1 else b"")


def _snappy_stream(chance: Random, writes: list[bytes]) -> bytes:
    snappy = Snappy()
    stream = b"".join(_with_odd_chunks(chance, snappy.compress(write)) for write in writes)
    return stream if chance.random() < 0.95 else stream.removeprefix(_IDENTIFIER)


def _with_odd_chunks(chance: Random, chunks: bytes) -> bytes:
    if chance.random() < 0.7:
        return chunks
    kind = chance.choice((0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF))
    data = chance.randbytes(chance.choice((0, 1, 4, 10, 100)))
    length = _mostly_right(chance, len(data))
    return chunks + (bytes([kind]) + length.to_bytes(3, "little") + data) * chance.choice((1, 1, 1, 2_000))


def _mostly_right(chance: Random, length: int) -> int:
    """A length, and now and then another one."""
    return length if chance.random() < 0.8 else chance.choice((0, 3, 65536, 76490, 76491, 0xFFFFFF))
