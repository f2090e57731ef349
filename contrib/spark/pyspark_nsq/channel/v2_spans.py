"""
The data that a consumer's connection reads, divided into spans of messages and other frames.

Performance: messages of one size cost a step for each chunk that is read, others a short step for each message. There
is no object for a message.
"""

from __future__ import annotations

import struct
from array import array

from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.v2_frames import MESSAGE, Frame, FrameReader
from pyspark_nsq.frames import BODY_AT, SIZE_BYTES, size_of_all

_HEAD = struct.Struct(">iI")
_SMALLEST_MESSAGE = BODY_AT - SIZE_BYTES


class SpanReader:
    """Divides the data of one connection to `nsqd`. A frame may have `most_bytes`."""

    def __init__(self, nsqd: str, most_bytes: int) -> None:
        self._nsqd = nsqd
        self._most_bytes = most_bytes
        self._others = FrameReader(most_bytes)
        self._rest = b""
        self._pieces: list[bytes] = []
        """What came behind `_rest`, joined when the frame is complete: a large message is copied once."""
        self._missing = 0
        """Bytes without which the first frame is incomplete, as far as its size is known."""

    def feed(self, data: bytes) -> tuple[list[Span], list[Frame]]:
        """Return the messages and the other frames that are complete. Raises InvalidFrame."""
        if self._missing > len(data):
            self._missing -= len(data)
            self._pieces.append(data)
            return [], []
        if self._rest:
            data = b"".join((self._rest, *self._pieces, data))
            self._pieces.clear()
        spans: list[Span] = []
        others: list[Frame] = []
        at = 0
        while True:
            span = self._messages(data, at)
            if span is not None:
                spans.append(span)
                at += len(span.frames)
                continue
            other = self._other(data, at)
            if other is None:
                break
            others.append(other)
            at += _HEAD.size + len(other.data)
        self._rest = data[at:]
        self._missing = self._size_of_first() - len(self._rest)
        return spans, others

    def _messages(self, data: bytes, at: int) -> Span | None:
        """Return the messages that are complete, from `at` on; None when there is none."""
        size = self._size_of_message(data, at)
        count = (len(data) - at) // size if size else 0
        if not count:
            return None
        frames = data[at : at + count * size]
        if size_of_all(frames, count):
            return Span(self._nsqd, count, frames)
        starts, stop = array("i", [0]), 0
        head_at, end, most = _HEAD.unpack_from, len(data) - BODY_AT, self._most_bytes
        while at + stop <= end:
            size, kind = head_at(data, at + stop)
            if kind != MESSAGE or not _SMALLEST_MESSAGE <= size <= most:
                break
            stop += size + SIZE_BYTES
            if at + stop > len(data):
                break
            starts.append(stop)
        return Span(self._nsqd, len(starts) - 1, data[at : at + starts[-1]], starts=starts)

    def _size_of_message(self, data: bytes, at: int) -> int:
        """Return the bytes of the frame at `at`, 0 unless it is a message, as far as its head is there."""
        if len(data) - at < _HEAD.size:
            return 0
        size, kind = _HEAD.unpack_from(data, at)
        return size + SIZE_BYTES if kind == MESSAGE and _SMALLEST_MESSAGE <= size <= self._most_bytes else 0

    def _other(self, data: bytes, at: int) -> Frame | None:
        """Return the frame at `at` when it is complete and no message. Raises InvalidFrame."""
        if len(data) - at < _HEAD.size or self._size_of_message(data, at):
            return None
        size = int.from_bytes(data[at : at + SIZE_BYTES], "big")
        self._others.add(data[at : at + max(size + SIZE_BYTES, _HEAD.size)])
        frame = self._others.next_frame()
        self._others.take_rest()
        return frame

    def _size_of_first(self) -> int:
        """Return the bytes of the first frame, 0 as long as its head, which is checked first, is incomplete."""
        if len(self._rest) < _HEAD.size:
            return 0
        return SIZE_BYTES + int.from_bytes(self._rest[:SIZE_BYTES], "big")
