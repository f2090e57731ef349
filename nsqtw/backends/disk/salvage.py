"""
Salvage of the messages of a damaged record.

A message is kept only if a checksum proves it:

- The checksum of the frames holds: the frames are intact.
- Otherwise the messages without a byte in a damaged block are kept, where the record has blocks. The frames before the
  first damaged block are read from the front. Behind one, the next frame is the first position from which frames with
  consecutive ids lead to the next damaged block or to the end.

All others are lost, also those whose frames look intact: the position of the damage within a block is unknown. The
record of a damaged head is lost as a whole.

A record with a header block (`header_block`) has a checksum of its frames and one of its headers in its trailer.
Messages whose headers are damaged are kept without them. If the trailer is damaged, the frames are treated as above,
and the headers are lost; messages for one channel are then lost, because the trailer names it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from nsqtw.backends.checksum import crc32
from nsqtw.backends.disk.format import RECORD_BYTES, Head, blocks_of, decode_head, decode_table
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


class Salvaged(NamedTuple):
    """The remains of a damaged record."""

    head: Head
    segments: list[Segment]
    lost: list[tuple[int, int]]
    """The first sequence of each run that is lost, and one past its last."""
    without_headers: int = 0
    """The number of messages in `segments` that have lost their headers."""
    channel: str | None = ""
    """The only channel that gets the messages, "" if all do; None: one does, and it is not known which."""

    @property
    def lost_count(self) -> int:
        return sum(end - first for first, end in self.lost)


def salvage(descriptor: Descriptor, position: int, size: int, above: int, below: int) -> Salvaged | None:
    """
    Salvage the damaged record at `position` of a file that is read up to `size`, with sequences from `above` on and
    below `below`. None when there is no head of such a record. OSError.
    """
    head = decode_head(descriptor.read(min(RECORD_BYTES, size - position), position))
    if head is None or not above <= head.first < head.end <= below:
        return None
    data = descriptor.read(min(head.size, size - position), position)
    start = RECORD_BYTES + head.table_bytes
    payload = data[start : start + head.length]
    bad: list[tuple[int, int]] = []
    if len(payload) < head.length or crc32(payload) != head.payload_crc:
        bad = _damaged_blocks(head, data, payload)
    if head.has_block:
        return _salvage_with_block(head, payload, bad)
    return Salvaged(head, *_what_is_left(head, payload, bad))


def _salvage_with_block(head: Head, payload: bytes, bad: list[tuple[int, int]]) -> Salvaged:
    """Salvage a record with a header block; `bad` are the damaged parts of its payload."""
    trailer = _trailer(payload, head)
    if trailer is None:
        is_any_left = bool(bad) and not head.is_directed
        segments, lost = _what_is_left(head, payload, bad) if is_any_left else ([], [(head.first, head.end)])
        kept_count = sum(segment.count for segment in segments)
        return Salvaged(head, segments, lost, kept_count, None if head.is_directed else "")
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
    without_headers = sum(segment.count for segment in kept) if headers is None else 0
    return Salvaged(head, kept, lost, without_headers, trailer.channel)


def _trailer(payload: bytes, head: Head) -> Trailer | None:
    """The trailer of the header block in a payload; None when it is damaged, or not all there."""
    trailer = decode_trailer(payload) if len(payload) == head.length else None
    return trailer if trailer is not None and bool(trailer.channel) == head.is_directed else None


def _what_is_left(head: Head, frames: bytes, bad: list[tuple[int, int]]) -> tuple[list[Segment], list[tuple[int, int]]]:
    """The messages without a byte in a `bad` part, and the runs of lost ones: the first, and one past the last."""
    if not bad:
        return [Segment(head.first, head.messages, head.delay_ms, frames)], []
    segments: list[Segment] = []
    lost: list[tuple[int, int]] = []
    above = head.first
    for first, end, begin, stop in _whole_runs(head, frames, bad):
        if first > above:
            lost.append((above, first))
        segments.append(Segment(first, end - first, head.delay_ms, frames[begin:stop]))
        above = end
    if above < head.end:
        lost.append((above, head.end))
    return segments, lost


def _damaged_blocks(head: Head, data: bytes, frames: bytes) -> list[tuple[int, int]]:
    """The parts of `frames` that are damaged, ascending: where each starts and where it ends."""
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
        bad += [(starts[number], ends[number]) for number in run]
    return bad


def _holds(frames: bytes, start: int, end: int, before: list[int], sums: list[int], number: int) -> bool:
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


def _whole_runs(head: Head, frames: bytes, bad: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
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
    frames: bytes, start: int, head: Head, lowest: int, bad: list[tuple[int, int]]
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


def _leads_to(frames: bytes, offset: int, head: Head, index: int, stop: int) -> bool:
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


def _frame_end(frames: bytes, offset: int, head: Head, index: int) -> int | None:
    """Return the end of the message frame that starts here; None when there is none."""
    if index >= head.messages or _index_at(frames, offset, head) != index:
        return None
    size: int = _FRAME.unpack_from(frames, offset)[0]
    end = offset + _SIZE_BYTES + size
    return end if offset + BODY_AT <= end <= head.length else None


def _index_at(frames: bytes, offset: int, head: Head) -> int | None:
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
