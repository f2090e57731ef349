"""Scan of the records of one log file, front to back, which continues after a damaged record."""

# mypyc: compiled

from __future__ import annotations

from typing import Final

from nsqtw.backends.checksum import crc32
from nsqtw.backends.disk.format import (
    BLOCK_MAGICS,
    HEAD_CRC_AT,
    MAGIC,
    MAGIC_PREFIX,
    RECORD_BYTES,
    TOMBSTONE,
    Entry,
    Head,
    decode_head,
    table_bytes,
    unpack_head,
)
from nsqtw.backends.disk.open_files import Descriptor
from nsqtw.backends.header_block import segment_of
from nsqtw.core.segment import Segment

BLOCK_BYTES: Final = 64 * 1024


class Scan:
    """
    Stands at `position`, where a record is expected whose first sequence is at least `above` and whose end is
    at most `below`. The file is looked at up to `size`, in blocks of `block` bytes. Reading may raise OSError.
    """

    __slots__ = (
        "_base",
        "_block",
        "_block_bytes",
        "_descriptor",
        "above",
        "below",
        "position",
        "put_total",
        "size",
    )

    def __init__(self, descriptor: Descriptor, entry: Entry, size: int, below: int, block: int = BLOCK_BYTES) -> None:
        self._descriptor = descriptor
        self.size = size
        self.below = below
        self._block_bytes = block
        self._block = b""
        self._base = 0
        self.jump(entry)

    def jump(self, entry: Entry) -> None:
        """Go where a record is known to be."""
        self.above = entry.sequence
        self.position = entry.position
        self.put_total = entry.put_total

    def head(self) -> Head | None:
        """The head of the record here; None when there is none that belongs here."""
        head = self.head_at(self.position)
        return head if head is not None and self.belongs(head) else None

    def is_whole(self, head: Head) -> bool:
        """Return whether the record here, whose head this is, has the payload that was written."""
        return self._is_whole_at(self.position, head)

    def segment(self, head: Head) -> Segment | None:
        """The messages of the record here, whose head this is; None when they are damaged."""
        payload = self._payload_at(self.position, head)
        return _segment_of(payload, head) if payload is not None else None

    def skip(self, head: Head) -> None:
        """Go past the record here."""
        self.position += head.size
        self.above = head.end
        self.put_total += head.put_count

    def pass_over(self, stop: int, above: int, count: int) -> None:
        """Go to `stop`, past bytes in which `count` messages below the sequence `above` were."""
        self.position = stop
        self.above = max(self.above, above)
        self.put_total += count

    def take(self, start: int, room: int, segments: list[Segment]) -> int:  # noqa: C901  # a call is a cost of each record
        """
        Go on over good records, adding those that end above `start` to `segments` while there is `room`: what
        head(), segment() and skip() do, at a third of their price. Stops at the latest where the block ends or
        where something is to be decided. The rest of `room`.
        """
        if self.position + RECORD_BYTES > self.size:
            return room
        block, offset = self._bytes_at(self.position, RECORD_BYTES)
        above, below = self.above, self.below
        rest = self.size - self._base
        while offset + RECORD_BYTES <= len(block):
            magic, length, first, count, layout, delay_ms, payload_crc, crc = unpack_head(block, offset)
            end = first + count
            begin = offset + RECORD_BYTES
            if layout:
                if layout == TOMBSTONE:
                    break
                if length <= layout & 0xFFFF or layout >> 16 == 0:
                    break
                begin += table_bytes(layout, length)
            stop = begin + length
            if magic != MAGIC and magic not in BLOCK_MAGICS:
                break
            if crc32(block[offset : offset + HEAD_CRC_AT]) != crc or stop > rest:
                break
            if not above <= first < end <= below:
                break
            if end > start:
                payload = block[begin:stop]
                if (segments and length > room) or stop > len(block) or crc32(payload) != payload_crc:
                    break
                if magic == MAGIC:
                    segments.append(Segment(first, count, delay_ms, payload))
                else:
                    segment = segment_of(payload, first, count, delay_ms)
                    if segment is None:
                        break
                    segments.append(segment)
                room -= length
            above, offset = end, stop
            self.put_total += count
            if room <= 0:
                break
        self.above, self.position = above, self._base + offset
        return room

    def entry_at(self) -> Entry:
        """The current position."""
        return Entry(self.above, self.position, self.put_total)

    def is_foreign(self) -> bool:
        """Return whether the record here is intact but of another time: older content, or a commit that was undone."""
        head = self.head_at(self.position)
        return head is not None and not self.belongs(head)

    def has_older(self) -> bool:
        """Return whether behind this, where no good record comes any more, stands a head of another time."""
        at = self.position
        while at + RECORD_BYTES <= self.size:
            head = self.head_at(at)
            if head is not None and not self.belongs(head):
                return True
            at = self.next_magic(at) if head is None else at + head.size
        return False

    def search(self) -> Head | None:
        """
        Here is no good record: go to the next one behind it. None, and no step, when there is none. What an
        intact head says is believed: the inside of its record, which a client wrote, is not searched.
        """
        at = self.position
        while at + RECORD_BYTES <= self.size:
            head = self.head_at(at)
            if head is None:
                at = self.next_magic(at)
                continue
            if self.belongs(head) and self._is_whole_at(at, head):
                self.position = at
                return head
            at += head.size
        return None

    def belongs(self, head: Head) -> bool:
        """Return whether the sequences of a head go on from here."""
        return self.above <= head.first < head.end <= self.below

    def head_at(self, position: int) -> Head | None:
        """Return the head at a position, whatever its sequences; None without one, or when its record is incomplete."""
        if position + RECORD_BYTES > self.size:
            return None
        block, offset = self._bytes_at(position, RECORD_BYTES)
        head = decode_head(block, offset)
        return head if head is not None and position + head.size <= self.size else None

    def _is_whole_at(self, position: int, head: Head) -> bool:
        payload = self._payload_at(position, head)
        return payload is not None and (not head.has_block or _segment_of(payload, head) is not None)

    def _payload_at(self, position: int, head: Head) -> bytes | None:
        block, offset = self._bytes_at(position, head.size)
        payload = block[offset + head.size - head.length : offset + head.size]
        return payload if len(payload) == head.length and crc32(payload) == head.payload_crc else None

    def next_magic(self, position: int) -> int:
        """The next place behind `position` where a record may start; `size` when there is none."""
        block, offset = self._bytes_at(position, RECORD_BYTES)
        if len(block) - offset < RECORD_BYTES:
            return self.size
        match = block.find(MAGIC_PREFIX, offset + 1)
        # The end of the block may split a magic: the next block starts with its possible beginning.
        return self._base + (match if match >= 0 else len(block) - len(MAGIC_PREFIX) + 1)

    def _bytes_at(self, position: int, size: int) -> tuple[bytes, int]:
        """A block with `size` bytes from `position` on, fewer where the file ends, and where in it they start."""
        offset = position - self._base
        if offset < 0 or offset + size > len(self._block):
            size = max(size, min(self._block_bytes, self.size - position))
            self._block = self._descriptor.read(size, position)
            self._base = position
            offset = 0
        return self._block, offset


def _segment_of(payload: bytes, head: Head) -> Segment | None:
    if head.has_block:
        return segment_of(payload, head.first, head.messages, head.delay_ms)
    return Segment(head.first, head.messages, head.delay_ms, payload)
