"""
Messages as a protocol gets them: one by one (`Message`), or as the frames that the broker keeps (`Batch`).

A frame has the form that `nsqtw.core.segment` draws, which is part of docs/protocol-v3.md, too.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsqtw.core.segment import BODY_AT, ID_AT, MESSAGE_HEAD, SIZE_BYTES
from nsqtw.message_headers import decode_headers


class Message(NamedTuple):
    """One message as a protocol is given it."""

    id: bytes
    """16 hex digits: what finish, requeue and touch take."""
    timestamp_ns: int
    """The time of publication, of the wall clock."""
    attempts: int
    """The number of deliveries, with this one."""
    body: bytes


class Batch:
    """
    Messages that are delivered together. `frames` are the frames of all, one after the other; `encoded_headers` are the
    encoded headers of each message, or None when no message has any. Nothing is decoded before it is asked for.
    """

    __slots__ = ("encoded_headers", "frames")

    def __init__(self, frames: bytes, encoded_headers: Sequence[bytes] | None) -> None:
        self.frames = frames
        self.encoded_headers = encoded_headers

    def messages(self) -> list[Message]:
        """Return the messages."""
        frames = self.frames
        messages: list[Message] = []
        offset, end = 0, len(frames)
        while offset < end:
            size, _, timestamp_ns, attempts = MESSAGE_HEAD.unpack_from(frames, offset)
            stop = offset + SIZE_BYTES + size
            body = frames[offset + BODY_AT : stop]
            messages.append(Message(frames[offset + ID_AT : offset + BODY_AT], timestamp_ns, attempts, body))
            offset = stop
        return messages

    def headers(self) -> list[dict[str, str]]:
        """Return the headers of each message."""
        if self.encoded_headers is None:
            return [{} for _ in self.messages()]
        return [decode_headers(encoded) for encoded in self.encoded_headers]
