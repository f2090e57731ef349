"""
The messages of an MPUB in its body: int32 size | body, one after the other.

Theory of operation. Bytes become message objects only when the MPUB is complete: as objects, a hundred thousand tiny
messages take ten times the memory of their bytes, and a client that sends only half of them could hold it as long as
the connection lasts. Messages larger than the overhead of an object are split off at once, which saves a second scan.

Performance: called once per message of an MPUB.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from itertools import chain
from typing import Final

from nsqtw.core.packed_messages import RUN, PackedMessages, have_one_size, run_of
from nsqtw.errors import ClientError

_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
unpack_size: Final = _SIZE.unpack_from
"""Bound once: Python 3.11 looks up the method of an imported name at every call, which takes 30 ns."""
_WEIGHT_BYTES: Final = 256
"""Messages that are smaller on the average stay bytes until the last one is there."""


class PartialMpub:
    """The messages that have arrived of the `expected` ones of an MPUB; 0 stands for no MPUB."""

    def __init__(self) -> None:
        self.expected = 0
        self.count = 0
        self.total = 0
        """Bytes of the body so far."""
        self.buffered_bytes = 0
        """Bytes of it that are kept here."""
        self.is_equal = True
        """Whether all messages had one size so far."""
        self._parts: list[list[bytes] | bytes] = []

    def begin(self, count: int) -> None:
        """Begin an MPUB of `expected` messages."""
        self.expected, self.count, self.total, self.buffered_bytes, self.is_equal = count, 0, SIZE_BYTES, 0, True

    def add(self, messages: list[bytes], buffer: bytes, start: int, stop: int) -> None:
        """`messages`, which are `buffer` from `start` to `stop`, are all that was there."""
        if messages:
            is_light = stop - start < _WEIGHT_BYTES * len(messages)
            self._parts.append(buffer[start:stop] if is_light else messages)
            self.buffered_bytes += stop - start
            self.count += len(messages)

    def finish(self, last: list[bytes]) -> list[bytes]:
        """Return all messages; `last` are those that were not added."""
        self.expected = 0
        if not self._parts:
            return last
        parts, self._parts, self.buffered_bytes = self._parts, [], 0
        return list(chain(*[messages_of(part) if isinstance(part, bytes) else part for part in parts], last))

    def forget(self) -> None:
        """Nobody wants it any more."""
        self._parts.clear()
        self.buffered_bytes = 0


def check_count(count: int, max_body_size: int) -> None:
    """The count of an MPUB. ClientError."""
    if not 0 < count <= (max_body_size - SIZE_BYTES) // (SIZE_BYTES + 1):
        raise ClientError("E_BAD_BODY", f"MPUB invalid message count {count}")


def check_size(index: int, size: int, max_msg_size: int) -> None:
    """The size of one message of an MPUB. ClientError."""
    if size <= 0:
        raise ClientError("E_BAD_MESSAGE", f"MPUB invalid message({index}) body size {size}")
    if size > max_msg_size:
        raise ClientError("E_BAD_MESSAGE", f"MPUB message too big {size} > {max_msg_size}")


def check_total(total: int, max_body_size: int) -> None:
    """Return the size of the MPUB's body as it is, whatever its header says. ClientError."""
    if total > max_body_size:
        raise ClientError("E_BAD_BODY", f"MPUB body too big {total} > {max_body_size}")


def equal_messages(buffer: bytes, offset: int, count: int, max_msg_size: int) -> list[bytes] | None:
    """
    The complete ones of `count` messages from `offset` on, or None when they do not all have the size of the first
    one, or that is not allowed.
    """
    if len(buffer) - offset < SIZE_BYTES:
        return []
    size: int = unpack_size(buffer, offset)[0]
    if not 0 < size <= max_msg_size:
        return None
    stride = SIZE_BYTES + size
    count = min(count, (len(buffer) - offset) // stride)
    if not have_one_size(buffer, offset, count, stride):
        return None
    # Unpacking a run at once takes 12 ns a message of 200 bytes, slicing each 40. To make the format takes 13 more. One
    # format for them all would be as long as the MPUB, and larger than it while it is kept.
    messages: list[bytes] = []
    for start in range(0, count, RUN):
        messages += run_of(min(RUN, count - start), size).unpack_from(buffer, offset + start * stride)
    return messages


def equal_messages_in(packed: bytes, start: int, stop: int, max_msg_size: int) -> list[bytes] | None:
    """The messages that are `packed[start:stop]` if they have one size, which is allowed; else None."""
    if stop - start < SIZE_BYTES:
        return None
    stride = SIZE_BYTES + unpack_size(packed, start)[0]
    if stride <= SIZE_BYTES or (stop - start) % stride:
        return None
    return equal_messages(packed, start, (stop - start) // stride, max_msg_size)


def messages_in(packed: bytes, start: int, stop: int) -> list[bytes]:
    """The messages that are `packed[start:stop]`, of any sizes. ValueError when it is not messages."""
    offset = start
    while offset < stop:
        if stop - offset < SIZE_BYTES:
            raise ValueError("the size of a message is incomplete")
        size = unpack_size(packed, offset)[0]
        offset += SIZE_BYTES + size
        if size < 0 or offset > stop:
            raise ValueError("a message is larger than what there is of it")
    return messages_of(packed[start:stop])


def packed_messages(body: bytes, max_body_size: int, max_msg_size: int) -> PackedMessages | None:
    """Return the messages of a whole body as they are; None when they differ in size, or something is not allowed."""
    if not 2 * SIZE_BYTES < len(body) <= max_body_size:
        return None
    count: int = unpack_size(body)[0]
    size: int = unpack_size(body, SIZE_BYTES)[0]
    if count <= 0 or not 0 < size <= max_msg_size or len(body) < SIZE_BYTES + count * (SIZE_BYTES + size):
        return None
    if not have_one_size(body, SIZE_BYTES, count, SIZE_BYTES + size):
        return None
    return PackedMessages(body, SIZE_BYTES, count, size)


def bytes_of_equal(messages: list[bytes]) -> int:
    """Return how many bytes messages of one size take up in an MPUB."""
    return len(messages) * (SIZE_BYTES + len(messages[0])) if messages else 0


def messages_of(raw: bytes) -> list[bytes]:
    """The messages of bytes that were looked through before."""
    messages = equal_messages(raw, 0, len(raw), len(raw)) or []
    offset = bytes_of_equal(messages)
    while offset < len(raw):
        start = offset + SIZE_BYTES
        offset = start + unpack_size(raw, offset)[0]
        messages.append(raw[start:offset])
    return messages
