"""
Deflate and snappy, both directions of one connection.

    deflate   raw DEFLATE (RFC 1951) in one stream; every write ends with a sync flush
    snappy    the framing format:

              type u8 | length u24, little-endian | data ...
              0xff  the identifier, sNaPpY: first in each direction
              0x00  compressed      masked CRC-32C | at most 65536 bytes, compressed
              0x01  uncompressed    masked CRC-32C | at most 65536 bytes
              0x02 to 0x7f          unknown, and an error
              0x80 to 0xfe          padding and the like, passed over

Theory of operation. What was read is kept compressed, and `read` decompresses one piece of it, of at most PIECE_BYTES.
Whoever feeds stops reading from the peer while there are pieces, so however far a few bytes unfold, memory has a bound:
what was read at once, and one piece. Work is done for a write and for a piece; for a chunk of snappy's, there is one
look at its head.

A stream that is damaged is one that cannot be read any further: BrokenStream, with the words of nsqd's log.
"""

from __future__ import annotations

import zlib

from nsqtw.errors import BrokenStream

PIECE_BYTES = 256 * 1024
"""The maximum size of a result of `read`."""

_RAW = -zlib.MAX_WBITS

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_HEAD_BYTES = 4
_CHECKSUM_BYTES = 4
_COMPRESSED, _UNCOMPRESSED, _FIRST_PASSED_OVER, _FIRST = 0x00, 0x01, 0x80, 0xFF
_LARGEST_BLOCK = 65536
_LARGEST_CHUNK = _CHECKSUM_BYTES + 32 + _LARGEST_BLOCK + _LARGEST_BLOCK // 6
"""Bytes of data that a chunk has at most: a block that snappy could not make smaller."""


class Deflate:
    """`level` is for what we send; the peer may use any, and end its stream."""

    def __init__(self, level: int) -> None:
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, _RAW)
        self._decompressor = zlib.decompressobj(_RAW)
        self._fed = b""
        self.has_ended = False

    def compress(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def feed(self, chunk: bytes) -> None:
        self._fed = self._fed + chunk if self._fed else chunk

    def read(self) -> bytes:
        """Compression API."""
        # Not only while there is input: the last of it may stand for more than was asked for.
        try:
            piece = self._decompressor.decompress(self._fed, PIECE_BYTES)
        except zlib.error as error:
            raise BrokenStream("flate: corrupt input") from error
        self._fed = self._decompressor.unconsumed_tail
        self.has_ended = self._decompressor.eof
        return piece


class Snappy:
    """The framing format, which has no end."""

    has_ended = False

    def __init__(self) -> None:
        # Imported lazily: only needed with compression.
        import cramjam

        self._snappy = cramjam.snappy
        self._failure = cramjam.DecompressionError
        self._compressor = cramjam.snappy.Compressor()
        self._fed = b""
        self._offset = 0
        self._is_identified = False

    def compress(self, data: bytes) -> bytes:
        self._compressor.compress(data)
        return bytes(self._compressor.flush())

    def feed(self, chunk: bytes) -> None:
        self._fed = self._fed[self._offset :] + chunk
        self._offset = 0

    def read(self) -> bytes:
        """Compression API."""
        while (stop := self._whole_chunks()) > self._offset:
            chunks, self._offset = self._fed[self._offset : stop], stop
            try:
                piece = bytes(self._snappy.decompress(_IDENTIFIER + chunks))
            except self._failure as error:
                raise BrokenStream("snappy: corrupt input") from error
            if piece:
                return piece
        return b""

    def _whole_chunks(self) -> int:
        """Return where the complete chunks of the next piece end, as many as a piece has room for."""
        fed, offset, room = self._fed, self._offset, PIECE_BYTES
        while len(fed) - offset >= _HEAD_BYTES:
            kind = fed[offset]
            length = int.from_bytes(fed[offset + 1 : offset + _HEAD_BYTES], "little")
            self._check(kind, length)
            end = offset + _HEAD_BYTES + length
            if end > len(fed):
                break
            if kind in (_COMPRESSED, _UNCOMPRESSED):
                room -= _LARGEST_BLOCK
                if room < 0:
                    break
            offset = end
        return offset

    def _check(self, kind: int, length: int) -> None:
        """Return what is wrong with the header of a chunk, before the rest of it arrives."""
        if not self._is_identified:
            if kind != _FIRST:
                raise BrokenStream("snappy: corrupt input")
            self._is_identified = True
        if length > _LARGEST_CHUNK or _UNCOMPRESSED < kind < _FIRST_PASSED_OVER:
            raise BrokenStream("snappy: unsupported input")
