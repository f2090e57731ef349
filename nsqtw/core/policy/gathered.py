"""
Gathered messages: messages of several places of the log, copied together, so that they are delivered in one go.

Theory of operation. A channel with an order leaves out the messages that have to wait for their key. If it delivered
what lies between them span by span, each short span would cost as much as a long one. So the frames that may be
delivered are copied together, and the result is used as a segment: it can be sliced, cut to a size and looked through
for expired messages. Only its sequences are not consecutive, and it is never stored.

    segment     a1 b1 a2 c1 a3 b2 d1        a2, a3 and b2 wait
    gathered    a1 b1    c1       d1

Performance: `gather` is called once per segment of the log, with a step for each message that waits; `gather_each` has
a step for each message.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final

from nsqtw.core.log import Log
from nsqtw.core.segment import BODY_AT, ID_AT, SEGMENT_BYTES, Segment, consecutive_ids
from nsqtw.message_headers import NO_HEADERS

_MAX_READS: Final = 4
"""Reads of the medium, about, for messages that are gathered one by one."""


class Gathered(Segment):
    """Messages with these ascending sequences, at least one, as a segment."""

    __slots__ = ("_ids", "sequences")

    def __init__(
        self, sequences: Sequence[int], ids: list[bytes], frames: bytes, headers: Sequence[bytes] | None
    ) -> None:
        super().__init__(sequences[0], len(sequences), 0, frames, headers)
        self.sequences = sequences
        self._ids = ids

    @property
    def ids(self) -> list[bytes]:
        return self._ids

    def number_at(self, index: int) -> int:
        return int(self._ids[index], 16)

    def sequence_at(self, index: int) -> int:
        return self.sequences[index]


def gather(segment: Segment, start: int, stop: int, left_out: Sequence[int]) -> Gathered:
    """
    Return the messages of a segment from the index `start` up to `stop` without those at the ascending indexes
    `left_out`. At least one is left.
    """
    frames, offsets, headers, first = segment.frames, segment.offsets, segment.headers, segment.first
    is_in = mask(start, stop, left_out)
    begins, ends = [start, *[index + 1 for index in left_out]], [*left_out, stop]
    pieces = [frames[offsets[begin] : offsets[end]] for begin, end in zip(begins, ends, strict=True)]
    return Gathered(
        [*compress(range(first + start, first + stop), is_in)],
        [*compress(consecutive_ids(segment.number_at(start), stop - start), is_in)],
        b"".join(pieces),
        None if headers is None else [*compress(headers[start:stop], is_in)],
    )


def mask(start: int, stop: int, left_out: Sequence[int]) -> bytearray:
    """Return a byte for each index from `start` up to `stop`: 0 for those `left_out`, 1 for the others."""
    is_in = bytearray(b"\1" * (stop - start))
    for index in left_out:
        is_in[index - start] = 0
    return is_in


def gather_each(log: Log, sequences: Sequence[int]) -> tuple[tuple[Segment, int, Sequence[int]] | None, list[int]]:
    """
    Return the first ones of messages with ascending sequences, about SEGMENT_BYTES, and fewer if they are far apart on
    the medium: a segment, the index in it from which on it has them, and their sequences. The second result are the
    sequences before and among them that are not in the log any more. BackendError.
    """
    found: list[int] = []
    lost: list[int] = []
    ids: list[bytes] = []
    pieces: list[bytes] = []
    headers: list[bytes] = []
    segment: Segment | None = None
    first = end = size = 0
    last_read = log.reads + _MAX_READS
    for sequence in sequences:
        if sequence >= end:
            if size >= SEGMENT_BYTES or log.reads >= last_read:
                break
            record = log.find(sequence)
            if record is None:
                lost.append(sequence)
                continue
            segment = record[0]
            frames, offsets, first, end = segment.frames, segment.offsets, segment.first, segment.end
            segment_headers = segment.headers
        index = sequence - first
        start, stop = offsets[index], offsets[index + 1]
        size += stop - start
        found.append(sequence)
        pieces.append(frames[start:stop])
        ids.append(frames[start + ID_AT : start + BODY_AT])
        headers.append(NO_HEADERS if segment_headers is None else segment_headers[index])
    if segment is None:
        return None, lost
    if len(found) == 1:
        return (segment, found[0] - segment.first, found), lost
    return (Gathered(found, ids, b"".join(pieces), headers if any(headers) else None), 0, found), lost
