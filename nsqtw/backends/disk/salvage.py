"""
Salvage of the messages of a damaged record.

A message is kept only if a checksum proves it:

- The head has one flipped bit: it is corrected if its own checksum then holds.
- The checksum of the frames holds: the frames are intact.
- One bit of the frames, or of one of their blocks, is flipped: its position follows from the checksum (`bit_flip`). It
  is
corrected if all frames are well formed afterwards.
- Otherwise the messages without a byte in a damaged block are kept, where the record has blocks. The frames before the
first damaged block are read from the front. Behind one, the next frame is the first position from which frames with
consecutive ids lead to the next damaged block or to the end.

All others are lost, also those whose frames look intact: the position of the damage within a block is unknown. The
record of a head that cannot be corrected is lost as a whole.

A record with a header block (`header_block`) has a checksum of its frames and one of its headers in its trailer.
Messages whose headers are damaged are kept without them. If the trailer is damaged, the frames are treated as above,
and the headers are lost; messages for one channel are then lost, because the trailer names it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from nsqtw.backends.bit_flip import flipped_bit
from nsqtw.backends.checksum import crc32
from nsqtw.backends.disk.format import (
    MAGICS,
    RECORD_BYTES,
    Head,
    blocks_of,
    decode_head,
    decode_table,
)
from nsqtw.backends.disk.open_files import Descriptor
from nsqtw.backends.header_block import Trailer, checked_headers, decode_trailer, with_headers
from nsqtw.core.segment import BODY_AT, FRAME_TYPE_MESSAGE, ID_AT, SEQUENCE_MASK, Segment
from nsqtw.message_headers import NO_HEADERS

_FRAME: Final = struct.Struct(">IIqH")  # size, frame type, timestamp, attempts
_TYPE_AT: Final = 4
_TYPE: Final = struct.pack(">I", FRAME_TYPE_MESSAGE)
_SIZE_BYTES: Final = 4

WRONG_FRAMES: Final = "the checksum of the frames is wrong"
WRONG_HEADERS: Final = "the headers are damaged, and the messages are kept without them"
ONE_BIT: Final = "one flipped bit, which is put right"


class Salvaged(NamedTuple):
    """The remains of a damaged record."""

    head: Head
    segments: list[Segment]
    lost: list[tuple[int, int]]
    """The first sequence of each run that is lost, and one past its last."""
    touched: int
    """The number of messages in damaged bytes: those lost, those without headers, those with a corrected bit."""
    without_headers: int = 0
    """The number of messages in `segments` that have lost their headers."""
    channel: str | None = ""
    """The only channel that gets the messages, "" if all do; None: one does, and it is not known which."""

    @property
    def lost_count(self) -> int:
        return sum(end - first for first, end in self.lost)


def why_damaged(lost_count: int, without_headers: int) -> str:
    """The kind of damage, in a few words, that cost so much."""
    if lost_count:
        return WRONG_FRAMES
    return WRONG_HEADERS if without_headers else ONE_BIT


def salvage(descriptor: Descriptor, position: int, size: int, above: int, below: int) -> Salvaged | None:
    """
    Salvage the damaged record at `position` of a file that is read up to `size`, with sequences from `above` on and
    below `below`. None when there is no head of such a record. OSError.
    """
    data = descriptor.read(min(RECORD_BYTES, size - position), position)
    head = decode_head(data)
    is_damaged = head is None
    if head is None:
        head = repaired_head(data)
    if head is None or not above <= head.first < head.end <= below:
        return None
    if is_damaged and position + head.size > size:
        return None
    if head.is_tombstone:
        return Salvaged(head, [], [], head.put_count)
    data = descriptor.read(min(head.size, size - position), position)
    return salvage_frames(head, data, is_damaged=is_damaged)


def salvage_frames(head: Head, data: bytes, *, is_damaged: bool = False) -> Salvaged:
    """
    Like `salvage`, for a head, which `is_damaged` when a bit of it was corrected, and all existing bytes of its record.
    """
    start = RECORD_BYTES + head.table_bytes
    written = data[start : start + head.length]
    payload = bytearray(written)
    bits: list[int] = []
    bad: list[tuple[int, int]] = []
    if len(payload) < head.length or crc32(payload) != head.payload_crc:
        bad = _repair_blocks(head, data, payload, bits)
        if bits and not (bad or _is_well_formed(payload, head)):
            payload = bytearray(written)
            bits, bad = [], [(0, head.length)]
    if head.has_block:
        return _salvage_with_block(head, payload, bits, bad, is_damaged=is_damaged)
    if not bad:
        touched = head.messages if is_damaged else _touched(payload, bits)
        return Salvaged(head, [Segment(head.first, head.messages, head.delay_ms, bytes(payload))], [], touched)
    segments, lost = _what_is_left(head, payload, bad)
    return Salvaged(head, segments, lost, sum(end - first for first, end in lost) + len(bits))


def _salvage_with_block(
    head: Head, payload: bytearray, bits: list[int], bad: list[tuple[int, int]], *, is_damaged: bool
) -> Salvaged:
    """Like `salvage_frames`; `bad` are the parts of the payload that stay damaged."""
    trailer = _trailer(payload, head)
    if trailer is None:
        is_any_left = bool(bad) and not head.is_directed
        segments, lost = _what_is_left(head, payload, bad) if is_any_left else ([], [(head.first, head.end)])
        kept_count = sum(segment.count for segment in segments)
        return Salvaged(head, segments, lost, head.messages, kept_count, None if head.is_directed else "")
    frames = payload[: trailer.frames_bytes]
    headers = checked_headers(payload, trailer, head.messages)
    if crc32(frames) == trailer.frames_crc:
        bad = []
    else:
        bad = [(begin, min(end, len(frames))) for begin, end in bad if begin < len(frames)] or [(0, len(frames))]
    segments, lost = _what_is_left(head, frames, bad)
    kept: list[Segment] = []
    for segment in segments:
        start = segment.first - head.first
        of_segment = [NO_HEADERS] if headers is None else headers[start : start + segment.count]
        kept.append(
            with_headers(segment.first, segment.count, head.delay_ms, segment.frames, of_segment, trailer.channel)
        )
    lost_count = sum(end - first for first, end in lost)
    without_headers = head.messages - lost_count if headers is None else 0
    touched = head.messages
    if not is_damaged:
        touched = lost_count + (without_headers or (len(bits) if bad else _touched(payload, bits)))
    return Salvaged(head, kept, lost, touched, without_headers, trailer.channel)


def _trailer(payload: bytearray, head: Head) -> Trailer | None:
    """The trailer of the header block in a payload; None when it is damaged, or not all there."""
    trailer = decode_trailer(payload) if len(payload) == head.length else None
    return trailer if trailer is not None and bool(trailer.channel) == head.is_directed else None


def _what_is_left(
    head: Head, frames: bytearray, bad: list[tuple[int, int]]
) -> tuple[list[Segment], list[tuple[int, int]]]:
    """The messages without a byte in a `bad` part, and the runs of lost ones: the first, and one past the last."""
    if not bad:
        return [Segment(head.first, head.messages, head.delay_ms, bytes(frames))], []
    segments: list[Segment] = []
    lost: list[tuple[int, int]] = []
    above = head.first
    for first, end, begin, stop in _whole_runs(head, frames, bad):
        if first > above:
            lost.append((above, first))
        segments.append(Segment(first, end - first, head.delay_ms, bytes(frames[begin:stop])))
        above = end
    if above < head.end:
        lost.append((above, head.end))
    return segments, lost


def _touched(frames: bytearray, bits: list[int]) -> int:
    """How many messages have one of these bits; a bit behind the frames counts as one more."""
    return len({_message_at(frames, bit // 8) for bit in bits})


def repaired_head(data: bytes) -> Head | None:
    """The head that these bytes are but for one bit."""
    if len(data) < RECORD_BYTES:
        return None
    # Three bytes of the magic are right, whatever the bit: nothing else is worth 320 checksums.
    if not any(sum(a == b for a, b in zip(data, magic, strict=False)) >= len(magic) - 1 for magic in MAGICS):
        return None
    for bit in range(8 * RECORD_BYTES):
        head = decode_head(_flipped(data[:RECORD_BYTES], bit))
        if head is not None:
            return head
    return None


def repaired_bytes(data: bytes, crc: int) -> bytes | None:
    """`data` with the one bit put right that makes its checksum `crc`; None when there is no such bit."""
    bit = flipped_bit(crc32(data) ^ crc, len(data))
    return _flipped(data, bit) if bit is not None else None


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _repair_blocks(head: Head, data: bytes, frames: bytearray, bits: list[int]) -> list[tuple[int, int]]:
    """
    Put single bits right in `frames`, noting them in `bits`. The parts that stay damaged, ascending: where each starts
    and where it ends.
    """
    ends = blocks_of(head)
    sums = decode_table(data, 0, head) if len(data) >= RECORD_BYTES + head.table_bytes else []
    if not sums:
        return [(0, head.length)]
    starts = [0, *ends[:-1]]
    before = [0, *sums[:-1]]
    wrong = [
        number for number in range(len(ends)) if not _holds(frames, starts[number], ends[number], before, sums, number)
    ]
    bad: list[tuple[int, int]] = []
    for run in _neighbours(wrong):
        first, last = run[0], run[-1]
        if ends[last] <= len(frames) and crc32(frames[starts[first] : ends[last]], before[first]) == sums[last]:
            continue  # only the table between them is damaged
        for number in run:
            start, end = starts[number], ends[number]
            bit = None
            if end <= len(frames):
                bit = flipped_bit(crc32(frames[start:end], before[number]) ^ sums[number], end - start)
            if bit is None:
                bad.append((start, end))
            else:
                frames[start + bit // 8] ^= 1 << bit % 8
                bits.append(8 * start + bit)
    return bad


def _holds(frames: bytearray, start: int, end: int, before: list[int], sums: list[int], number: int) -> bool:
    return end <= len(frames) and crc32(frames[start:end], before[number]) == sums[number]


def _neighbours(numbers: list[int]) -> Iterator[list[int]]:
    """Return the same as runs of consecutive sequences."""
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _whole_runs(head: Head, frames: bytearray, bad: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """
    The messages that have no byte in a `bad` part, in runs: the first sequence, one past the last, and where the frames
    of the run start and end.
    """
    index = offset = 0
    for bad_start, bad_end in [*bad, (len(frames), len(frames))]:
        begin, first = offset, index
        while offset < bad_start:
            end = _frame_end(frames, offset, head, index)
            if end is None or end > bad_start:
                break
            index, offset = index + 1, end
        if index > first:
            yield head.first + first, head.first + index, begin, offset
        if bad_end >= len(frames):
            return
        following = _next_frame(frames, bad_end, head, index, bad)
        if following is None:
            return
        index, offset = following


def _next_frame(
    frames: bytearray, start: int, head: Head, lowest: int, bad: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """The index of the first whole frame from `start` on, at least `lowest`, and where it is."""
    stop = min([begin for begin, _ in bad if begin >= start], default=len(frames))
    at = frames.find(_TYPE, start + _TYPE_AT, stop)
    while at >= 0:
        offset = at - _TYPE_AT
        index = _index_at(frames, offset, head)
        if index is not None and index >= lowest and _leads_to(frames, offset, head, index, stop):
            return index, offset
        at = frames.find(_TYPE, at + 1, stop)
    return None


def _leads_to(frames: bytearray, offset: int, head: Head, index: int, stop: int) -> bool:
    """
    Return whether whole frames follow each other from here up to `stop`, or to one that goes beyond, or to the last one
    of a record with a header block, which begins behind it.
    """
    while offset < stop:
        if index == head.messages and head.has_block:
            return True
        if offset + BODY_AT > stop:
            return stop < len(frames)
        end = _frame_end(frames, offset, head, index)
        if end is None:
            return False
        index, offset = index + 1, end
    return stop < len(frames) or (offset == stop and index == head.messages)


def _frame_end(frames: bytearray, offset: int, head: Head, index: int) -> int | None:
    """Return the end of the message frame that starts here; None when there is none."""
    if index >= head.messages or _index_at(frames, offset, head) != index:
        return None
    size: int = _FRAME.unpack_from(frames, offset)[0]
    end = offset + _SIZE_BYTES + size
    return end if offset + BODY_AT <= end <= head.length else None


def _index_at(frames: bytearray, offset: int, head: Head) -> int | None:
    """Which message of the record has a frame here, by its id."""
    if offset + BODY_AT > len(frames):
        return None
    _, kind, _, _ = _FRAME.unpack_from(frames, offset)
    try:
        number = int(frames[offset + ID_AT : offset + BODY_AT], 16)
    except ValueError:
        return None
    index = (number & SEQUENCE_MASK) - head.first
    return index if kind == FRAME_TYPE_MESSAGE and 0 <= index < head.messages else None


def _is_well_formed(payload: bytearray, head: Head) -> bool:
    if not head.has_block:
        return _leads_to(payload, 0, head, 0, len(payload))
    trailer = _trailer(payload, head)
    if trailer is None or crc32(payload[: trailer.frames_bytes]) != trailer.frames_crc:
        return False
    return checked_headers(payload, trailer, head.messages) is not None


def _message_at(frames: bytearray, position: int) -> int:
    """The index of the message that has this byte of well-formed frames."""
    index = offset = 0
    while offset + _FRAME.size <= len(frames):
        size: int = _FRAME.unpack_from(frames, offset)[0]
        offset += _SIZE_BYTES + size
        if position < offset:
            break
        index += 1
    return index
