"""
Frames of NSQ's V2 protocol as a client reads them.

    frame     size u32 | type u32 | data                    size counts type and data
    type      0 response   1 error   2 message   3 message with headers, for clients that asked for them
    message   timestamp i64 ns | attempts u16 | id 16 bytes | body, before which type 3 has size u16 | headers

This module and `commands` import nothing of nsqtw: the connector for Spark, which is installed without the broker, has
copies of them (contrib/spark/copies.py), so the tree has one codec for clients.

Performance: called once for each chunk that is read; a step for each message in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

M = TypeVar("M")

HEARTBEAT: Final = b"_heartbeat_"
RESPONSE: Final = 0
ERROR: Final = 1
MESSAGE: Final = 2
HEADED: Final = 3

_HEAD = struct.Struct(">iI")
_MESSAGE = struct.Struct(">iIqH16s")
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8
_BODY_AT: Final = 34
_HEADERS_AT: Final = _BODY_AT + 2
_SMALLEST_MESSAGE: Final = _BODY_AT - _SIZE_BYTES
_SMALLEST_HEADED: Final = _HEADERS_AT - _SIZE_BYTES
_HTTP: Final = int.from_bytes(b"HTTP", "big")
_OK_FRAME: Final = b"\0\0\0\x06\0\0\0\0OK"
_OK_BYTES: Final = len(_OK_FRAME)


class InvalidFrame(Exception):
    """The data does not follow the protocol. The text says why; `frames` are the responses and errors before it."""

    frames: Sequence[Frame] = ()


class Frame(NamedTuple):
    """
    A response (`is_error` False) or an error frame. `at` is the place of the command that it answers among those
    without an answer: V2 answers in order. `ids` are the ids of the messages of a publish, if they were asked for.
    """

    is_error: bool
    data: bytes
    at: int = 0
    ids: tuple[bytes, ...] = ()


class FrameReader:
    """
    Splits what a connection reads into frames. A frame may have `max_size` bytes, 0 for any. `decode_headers` decodes
    the headers of a message; None: headers were not asked for.
    """

    def __init__(self, max_size: int = 0, decode_headers: Callable[[bytes], Mapping[str, str]] | None = None) -> None:
        self._max_size = max_size
        self._decode_headers = decode_headers
        self._rest = b""
        self._pieces: list[bytes] = []
        """What came behind `_rest`, joined when the frame is complete: a large message is copied once."""
        self._missing = 0
        """Bytes without which the first frame is incomplete, as far as its size is known."""

    def feed(self, data: bytes, make: Callable[..., M]) -> tuple[list[M], list[Frame]]:
        """
        Return the messages and the other frames that are complete. `make` makes a message of its timestamp, attempts,
        id and body, and of its headers if it has any. InvalidFrame.
        """
        if self._missing > len(data):
            self._missing -= len(data)
            self._pieces.append(data)
            return [], []
        if self._rest:
            data = b"".join((self._rest, *self._pieces, data))
            self._pieces.clear()
        messages: list[M] = []
        frames: list[Frame] = []
        try:
            self._rest = self._split(data, make, messages, frames)
        except InvalidFrame as error:
            error.frames = frames
            raise
        self._missing = self._size_of_first() - len(self._rest)
        return messages, frames

    def _split(self, data: bytes, make: Callable[..., M], messages: list[M], frames: list[Frame]) -> bytes:
        """Add what is complete in `data`. Returns the rest. InvalidFrame."""
        end = len(data)
        position = 0
        unpack = _MESSAGE.unpack_from
        while end - position >= _BODY_AT:
            size, kind, timestamp, attempts, message_id = unpack(data, position)
            stop = position + _SIZE_BYTES + size
            if kind != MESSAGE or size < _SMALLEST_MESSAGE or self._max_size:
                self._check(size, kind)
                if stop > end:
                    break
                if kind != MESSAGE:
                    if kind == HEADED:
                        headers, body = self._headed(data, position + _BODY_AT, stop)
                        messages.append(make(timestamp, attempts, message_id, body, headers))
                    else:
                        frames.append(Frame(kind == ERROR, data[position + _HEAD_BYTES : stop]))
                    position = stop
                    continue
            if stop > end:
                break
            messages.append(make(timestamp, attempts, message_id, data[position + _BODY_AT : stop]))
            position = stop
        while end - position >= _HEAD_BYTES:
            size, kind = _HEAD.unpack_from(data, position)
            self._check(size, kind)
            stop = position + _SIZE_BYTES + size
            if stop > end or kind >= MESSAGE:
                break
            frames.append(Frame(kind == ERROR, data[position + _HEAD_BYTES : stop]))
            position = stop
        return data[position:] if position else data

    def count_oks(self, data: bytes) -> int:
        """Return how many frames with OK `data` is, 0 when it is anything else. For producers: one step a chunk."""
        if self._rest or len(data) % _OK_BYTES:
            return 0
        count = len(data) // _OK_BYTES
        return count if data == _OK_FRAME * count else 0

    def add(self, data: bytes) -> None:
        """Keep data for `next_frame`, during the handshake."""
        self._rest += data

    def next_frame(self) -> Frame | None:
        """Return the next frame, during the handshake; None while it is incomplete. InvalidFrame."""
        if len(self._rest) < _HEAD_BYTES:
            return None
        size, kind = _HEAD.unpack_from(self._rest)
        self._check(size, kind)
        if len(self._rest) < _SIZE_BYTES + size:
            return None
        data = self._rest[_HEAD_BYTES : _SIZE_BYTES + size]
        self._rest = self._rest[_SIZE_BYTES + size :]
        return Frame(kind == ERROR, data)

    def take_rest(self) -> bytes:
        """Remove and return the data behind the last frame."""
        rest, self._rest = self._rest, b""
        return rest

    def _size_of_first(self) -> int:
        """Return the bytes of the first frame, 0 as long as its head, which is checked first, is incomplete."""
        if len(self._rest) < _HEAD_BYTES:
            return 0
        return _SIZE_BYTES + int.from_bytes(self._rest[:_SIZE_BYTES], "big")

    def _headed(self, data: bytes, offset: int, stop: int) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of a message. InvalidFrame."""
        assert self._decode_headers is not None, "the type was checked"
        start = offset + _HEADERS_AT - _BODY_AT
        end = start + int.from_bytes(data[offset:start], "big")
        if end > stop:
            raise InvalidFrame("invalid headers of a message")
        try:
            return self._decode_headers(data[start:end]), data[end:stop]
        except Exception as error:  # of any decoder
            raise InvalidFrame(f"invalid headers of a message: {error}") from error

    def _check(self, size: int, kind: int) -> None:
        if size == _HTTP:
            raise InvalidFrame("unexpected HTTP response, a nsqd TCP endpoint is required")
        if size < 0:
            raise InvalidFrame(f"response msg size is negative: {size}")
        if self._max_size and size > self._max_size:
            raise InvalidFrame(f"response msg size {size} exceeds configured maximum ({self._max_size})")
        last = MESSAGE if self._decode_headers is None else HEADED
        smallest = (_SIZE_BYTES, _SIZE_BYTES, _SMALLEST_MESSAGE, _SMALLEST_HEADED)
        if kind > last or size < smallest[kind]:
            raise InvalidFrame(f"invalid frame of type {kind} and size {size}")
