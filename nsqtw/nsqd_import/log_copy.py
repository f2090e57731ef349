"""
The copy of messages into a topic's log, each with its publish time and a new id.

Sequences come from blocks of the broker's, as those of published messages do. They are collected to segments, the
segments to commits; what `end_of_log` returns is on stable storage.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.core.segment import BODY_AT, SEGMENT_BYTES, Segment, encode_dated
from nsqtw.core.sequences import BLOCK_SIZE
from nsqtw.interfaces import IBackend, IBackendQueue

_COMMIT_BYTES = 4 * 1024 * 1024


class LogCopy:
    """Appends to `queue`, which belongs to `backend`. BackendError from any method."""

    def __init__(
        self, backend: IBackend, queue: IBackendQueue, take_blocks: Callable[[int], int], node_id: int
    ) -> None:
        self._backend = backend
        self._queue = queue
        self._take_blocks = take_blocks
        self._node_id = node_id
        self._next = self._block_end = 0
        self._messages: list[tuple[int, bytes]] = []
        self._delay_ms = 0
        self._bytes = 0
        self._segments: list[Segment] = []
        self._segments_bytes = 0

    def add(self, timestamp_ns: int, body: bytes, delay_ms: int = 0) -> int:
        """Append a message. Its sequence."""
        size = len(body) + BODY_AT
        if self._bytes + size > SEGMENT_BYTES or self._next == self._block_end or delay_ms != self._delay_ms:
            self._seal()
            self._delay_ms = delay_ms
        sequence = self._next
        self._next += 1
        self._messages.append((timestamp_ns, body))
        self._bytes += size
        return sequence

    def end_of_log(self) -> int:
        """One past the highest sequence in the log, now that all is stored."""
        self._seal()
        self._commit(durable=True)
        end: int = self._queue.end
        return end

    def _seal(self) -> None:
        if self._messages:
            first = self._next - len(self._messages)
            self._segments.append(encode_dated(self._messages, first, self._node_id, self._delay_ms))
            self._segments_bytes += self._bytes
            self._messages, self._bytes = [], 0
        if self._segments_bytes >= _COMMIT_BYTES:
            self._commit(durable=False)
        if self._next == self._block_end:
            self._next = self._take_blocks(1) * BLOCK_SIZE
            self._block_end = self._next + BLOCK_SIZE

    def _commit(self, *, durable: bool) -> None:
        writes = [(self._queue, self._segments)] if self._segments else []
        for failure in self._backend.commit(writes, durable).values():
            raise failure
        self._segments, self._segments_bytes = [], 0
