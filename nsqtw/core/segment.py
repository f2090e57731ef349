"""
Segments: immutable runs of messages, encoded once as the frames a consumer receives first.

Theory of operation. A message is encoded when it is published and never again: the bytes below go to the log, and
slices of the same bytes go to the consumers of every channel. All messages of a segment share one delay, and their
sequences (so their ids) are consecutive. The offsets of single messages are computed when they are first needed: a
segment that is only stored does not pay for them.

One frame, big-endian:

    offset 0     4       8               16      18                  34
           size  type=2  timestamp (ns)  attempts  id, 16 hex digits  body ...
           size counts everything behind it: 30 + len(body)

Headers of messages, if there are any, are beside the frames (`headers`, encoded as in `message_headers`): a consumer
that did not ask for them gets the frames alone.

An id is one number: node id (10 bits) . sequence (53 bits), printed as 16 hex digits.

Performance: every hot path; see docs/explanation/performance-internals.md before and after a change.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from typing import Final, NamedTuple

from nsqtw.message_headers import NO_HEADERS

SEQUENCE_BITS: Final = 53
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
SEGMENT_BYTES: Final = 256 * 1024
"""The size at which a run of messages is split into segments; a larger message is a segment of its own."""

FRAME_TYPE_MESSAGE: Final = 2
ID_BYTES: Final = 16
SIZE_BYTES: Final = 4
MESSAGE_HEAD: Final = struct.Struct(">iiqH")
"""Size of what follows it, frame type, timestamp, attempts. The id and the body come next."""
_SIZE: Final = struct.Struct(">I")
_TYPE_TO_ATTEMPTS: Final = struct.Struct(">iqH")
_ATTEMPTS: Final = struct.Struct(">H")
_ATTEMPTS_AT: Final = MESSAGE_HEAD.size - _ATTEMPTS.size
_TIMESTAMP: Final = struct.Struct(">q")
_TIMESTAMP_AT: Final = 2 * SIZE_BYTES
ID_AT: Final = MESSAGE_HEAD.size
BODY_AT: Final = ID_AT + ID_BYTES
_SIZE_BEYOND_BODY: Final = BODY_AT - SIZE_BYTES

# The last three hex digits of an id. What precedes them is the same for all ids up to the next border of 4096, so the
# ids of a run are made without a step for each.
_ENDINGS: Final = [b"%03x" % n for n in range(4096)]


def id_of(node_id: int, sequence: int) -> bytes:
    """The 16 hex digits of the message at `sequence` published on node `node_id`."""
    return b"%016x" % (node_id << SEQUENCE_BITS | sequence)


def sequence_of(message_id: bytes) -> int:
    """The sequence in a message id. ValueError if these are not hex digits."""
    return int(message_id, 16) & SEQUENCE_MASK


def timestamp_ns_of(frames: bytes, offset: int = 0) -> int:
    """The wall-clock time in the frame at `offset`."""
    timestamp_ns: int = _TIMESTAMP.unpack_from(frames, offset + _TIMESTAMP_AT)[0]
    return timestamp_ns


def consecutive_ids(first: int, count: int) -> list[bytes]:
    """`count` ids from the id with the number `first` (node id included) on."""
    return [prefix + ending for prefix, endings in _id_runs(first, count) for ending in endings]


def _id_runs(first: int, count: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """Return the same ids as runs that share all but the last three digits: that prefix, and the digits behind it."""
    while count:
        prefix, endings = _id_run(first, count)
        yield prefix, endings
        first += len(endings)
        count -= len(endings)


def _id_run(first: int, count: int) -> tuple[bytes, list[bytes]]:
    low = first & 0xFFF
    return b"%013x" % (first >> 12), _ENDINGS[low : low + count]


def joined_ids(first: int, count: int, separator: bytes) -> bytes:
    """Like `consecutive_ids`, at least one id, as one text: a quarter of the cost of making and joining single ids."""
    parts: list[bytes] = []
    while count > 0:
        endings = _ENDINGS[first & 0xFFF : (first & 0xFFF) + count]
        prefix = b"%013x" % (first >> 12)
        parts.append(prefix + (separator + prefix).join(endings))
        first += len(endings)
        count -= len(endings)
    return separator.join(parts)


class Segment:
    """
    `count` messages, at least one, from the sequence `first` on, with consecutive sequences.

    `delay_ms` is the delay they were published with (0: none). `frames` are their frames, one after
    the other, attempts = 1. `headers` are the encoded headers of each message; None when no message has any. `channel`
    is the one channel that gets the messages; "" for all. Nothing of it ever changes.
    """

    __slots__ = ("_offsets", "channel", "count", "delay_ms", "first", "frames", "headers")

    def __init__(
        self,
        first: int,
        count: int,
        delay_ms: int,
        frames: bytes,
        headers: Sequence[bytes] | None = None,
        channel: str = "",
    ) -> None:
        self.first = first
        self.count = count
        self.delay_ms = delay_ms
        self.frames = frames
        self.headers = headers
        self.channel = channel
        self._offsets: Sequence[int] | None = None

    @property
    def end(self) -> int:
        """One past the highest sequence."""
        return self.first + self.count

    @property
    def header_bytes(self) -> int:
        """The size of all encoded headers."""
        return 0 if self.headers is None else sum(map(len, self.headers))

    @property
    def size(self) -> int:
        """The size of all frames and headers."""
        return len(self.frames) + self.header_bytes

    @property
    def offsets(self) -> Sequence[int]:
        """The start of each frame in `frames`, and the length of `frames`."""
        if self._offsets is None:
            self._offsets = _offsets(self.frames, self.count)
        return self._offsets

    @property
    def ids(self) -> list[bytes]:
        """The ids as they stand in the frames. Consecutive, so the first one tells them all."""
        return consecutive_ids(self.number_at(0), self.count)

    def number_at(self, index: int) -> int:
        """The id of a message as a number."""
        return int(self.frames[ID_AT:BODY_AT], 16) + index

    def sequence_at(self, index: int) -> int:
        return self.first + index

    @property
    def timestamp_ns(self) -> int:
        """Wall-clock time at which the first message was published."""
        return timestamp_ns_of(self.frames)

    def published_together(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """
        The messages `start` to `stop` (indexes) in runs that share a timestamp: (timestamp, start, stop). A segment is
        published at once, and only one that was joined or imported is looked through: when its ends differ.
        """
        frames, offsets = self.frames, self.offsets
        first = timestamp_ns_of(frames, offsets[start])
        if first == timestamp_ns_of(frames, offsets[stop - 1]):
            yield first, start, stop
            return
        for timestamp_ns, run in groupby([timestamp_ns_of(frames, offset) for offset in offsets[start:stop]]):
            end = start + len(list(run))
            yield timestamp_ns, start, end
            start = end

    def slice(self, start: int, stop: int) -> bytes:
        """The frames of the messages `start` to `stop` (indexes, not sequences)."""
        if start == 0 and stop == self.count:
            return self.frames
        offsets = self.offsets
        return self.frames[offsets[start] : offsets[stop]]

    def part(self, start: int, stop: int) -> Segment:
        """The messages `start` to `stop` (indexes) as a segment of their own."""
        headers = None if self.headers is None else _headers_or_none(self.headers[start:stop])
        return Segment(self.first + start, stop - start, self.delay_ms, self.slice(start, stop), headers, self.channel)

    def with_delay(self, delay_ms: int) -> Segment:
        """The same messages with another delay."""
        return Segment(self.first, self.count, delay_ms, self.frames, self.headers, self.channel)

    def is_for(self, channel: str) -> bool:
        """Return whether a channel gets the messages."""
        return not self.channel or self.channel == channel

    def headers_of(self, index: int) -> bytes:
        """The encoded headers of one message."""
        return NO_HEADERS if self.headers is None else self.headers[index]

    def fit(self, start: int, stop: int, limit: int) -> int:
        """The largest index up to `stop` so that the frames from `start` fit into `limit` bytes; at least one frame."""
        if stop - start == 1:
            return stop
        offsets = self.offsets
        base = offsets[start]
        if offsets[stop] - base <= limit:
            return stop
        return max(start + 1, bisect_right(offsets, base + limit, start, stop) - 1)

    def redelivery_frame(self, index: int, attempts: int) -> bytes:
        """The frame of one message for a delivery that is not its first."""
        frame = self.slice(index, index + 1)
        return b"".join(
            (frame[:_ATTEMPTS_AT], _ATTEMPTS.pack(attempts & 0xFFFF), frame[_ATTEMPTS_AT + _ATTEMPTS.size :])
        )

    def __repr__(self) -> str:
        return f"<Segment {self.first}+{self.count} {len(self.frames)} B>"


class Span(NamedTuple):
    """A part of a segment: the messages `start` to `stop` (indexes). Cutting one copies nothing."""

    segment: Segment
    start: int
    stop: int


def encode(
    bodies: list[bytes],
    first: int,
    node_id: int,
    timestamp_ns: int,
    delay_ms: int = 0,
    sizes: Collection[int] | None = None,
    headers: Sequence[bytes] | None = None,
    channel: str = "",
) -> Segment:
    """
    Encode message bodies as one segment whose first message has the sequence `first`. `sizes`: the sizes of the bodies,
    perhaps with others; a caller that knows them saves a look at each body. `headers` and `channel`: see `Segment`.
    """
    count = len(bodies)
    if count == 1:  # a publish that is alone in its turn: 1.7 -> 0.6 us
        body = bodies[0]
        frames = b"".join((_head(len(body), timestamp_ns), id_of(node_id, first), body))
        return Segment(first, 1, delay_ms, frames, headers, channel)
    if sizes is None:
        sizes = sizes_of(bodies)
    shared = _TYPE_TO_ATTEMPTS.pack(FRAME_TYPE_MESSAGE, timestamp_ns, 1)
    prefix, endings = _id_run(node_id << SEQUENCE_BITS | first, count)
    if len(endings) == count:  # mostly, and no list is copied: two MPUBs 468 -> 457 thousand instructions
        frames = b"".join(_parts(bodies, sizes, shared + prefix, endings))
        return Segment(first, count, delay_ms, frames, headers, channel)
    parts: list[bytes] = []
    start = 0
    for prefix, endings in _id_runs(node_id << SEQUENCE_BITS | first, count):
        run = bodies[start : start + len(endings)]
        start += len(run)
        parts += _parts(run, sizes, shared + prefix, endings)
    return Segment(first, count, delay_ms, b"".join(parts), headers, channel)


def _parts(bodies: list[bytes], sizes: Collection[int], shared: bytes, endings: list[bytes]) -> list[bytes]:
    """The frames of a run, in parts; `shared` is what all have between their size and the last digits of their id."""
    if len(sizes) == 1:
        [size] = sizes
        parts = [_SIZE.pack(size + _SIZE_BEYOND_BODY) + shared] * (3 * len(bodies))
        parts[1::3] = endings
        parts[2::3] = bodies
    else:
        parts = [shared] * (4 * len(bodies))
        parts[0::4] = [_SIZE.pack(len(body) + _SIZE_BEYOND_BODY) for body in bodies]
        parts[2::4] = endings
        parts[3::4] = bodies
    return parts


def encode_dated(messages: Sequence[tuple[int, bytes]], first: int, node_id: int, delay_ms: int = 0) -> Segment:
    """Like `encode`, for messages that were published before: (timestamp, body) of each."""
    parts: list[bytes] = [b""] * (3 * len(messages))
    parts[0::3] = [_head(len(body), timestamp_ns) for timestamp_ns, body in messages]
    parts[1::3] = consecutive_ids(node_id << SEQUENCE_BITS | first, len(messages))
    parts[2::3] = [body for _, body in messages]
    return Segment(first, len(messages), delay_ms, b"".join(parts))


def sizes_of(bodies: list[bytes]) -> Collection[int]:
    """
    The sizes that occur in at least one body. Mostly it is one: compiled, a loop finds that out in a thirtieth of the
    time that a set of all sizes takes, and interpreted in the same.
    """
    first = len(bodies[0])
    for body in bodies:
        if len(body) != first:
            return set(map(len, bodies))
    return (first,)


def cuts(bodies: list[bytes], sizes: Collection[int]) -> Iterable[list[bytes]]:
    """
    `bodies`, at least one, of `sizes`, in runs that make segments of at most SEGMENT_BYTES; a larger body is a run of
    its own.
    """
    largest: int = max(sizes) + BODY_AT
    if largest * len(bodies) <= SEGMENT_BYTES:
        return (bodies,)
    if len(sizes) == 1:
        step = max(1, SEGMENT_BYTES // largest)
        return [bodies[start : start + step] for start in range(0, len(bodies), step)]
    return _cuts(bodies)


def _cuts(bodies: list[bytes]) -> Iterator[list[bytes]]:
    ends = list(accumulate((len(body) + BODY_AT for body in bodies), initial=0))
    start = 0
    while start < len(bodies):
        stop = max(start + 1, bisect_right(ends, ends[start] + SEGMENT_BYTES, start) - 1)
        yield bodies[start:stop]
        start = stop


def only(segment: Segment, keep: Iterable[int]) -> list[Segment]:
    """
    Return the parts of a segment with the sequences in `keep` (ascending), one segment for each run of consecutive
    ones. Sequences outside the segment are ignored.
    """
    runs: list[list[int]] = []
    for sequence in keep:
        index = sequence - segment.first
        if not 0 <= index < segment.count:
            continue
        if runs and runs[-1][1] == index:
            runs[-1][1] = index + 1
        else:
            runs.append([index, index + 1])
    return [segment.part(start, stop) for start, stop in runs]


def merge(segments: Sequence[Segment]) -> list[Segment]:
    """
    Return the same messages in fewer segments: neighbours without a delay and without a gap are merged, up to
    SEGMENT_BYTES. Each segment has a cost when it is served, and single publishes make small ones.
    """
    merged: list[Segment] = []
    run: list[Segment] = []
    run_bytes = 0
    for segment in segments:
        size = segment.size
        if run and not (_continues(run[-1], segment) and run_bytes + size <= SEGMENT_BYTES):
            merged.append(_joined(run))
            run, run_bytes = [], 0
        run.append(segment)
        run_bytes += size
    if run:
        merged.append(_joined(run))
    return merged


def _continues(before: Segment, segment: Segment) -> bool:
    return (
        segment.first == before.end
        and not before.delay_ms
        and not segment.delay_ms
        and segment.channel == before.channel
        and int(segment.frames[ID_AT:BODY_AT], 16) == int(before.frames[ID_AT:BODY_AT], 16) + before.count
    )


def _joined(run: Sequence[Segment]) -> Segment:
    if len(run) == 1:
        return run[0]
    frames = b"".join([segment.frames for segment in run])
    headers: list[bytes] | None = None
    if any(segment.headers is not None for segment in run):
        headers = [*chain.from_iterable(segment.headers or [NO_HEADERS] * segment.count for segment in run)]
    return Segment(run[0].first, sum(segment.count for segment in run), 0, frames, headers, run[0].channel)


def _headers_or_none(headers: Sequence[bytes]) -> Sequence[bytes] | None:
    return headers if any(headers) else None


def _head(body_bytes: int, timestamp_ns: int) -> bytes:
    return MESSAGE_HEAD.pack(body_bytes + _SIZE_BEYOND_BODY, FRAME_TYPE_MESSAGE, timestamp_ns, 1)


def _offsets(frames: bytes, count: int) -> Sequence[int]:
    """A range when all frames have one length, which a few strided slices tell, else found by walking."""
    step = _SIZE.unpack_from(frames)[0] + SIZE_BYTES
    if step * count == len(frames) and all(
        frames[byte_index::step] == frames[byte_index : byte_index + 1] * count for byte_index in range(SIZE_BYTES)
    ):
        return range(0, len(frames) + 1, step)
    offsets = [0] * (count + 1)
    offset = 0
    unpack_from = _SIZE.unpack_from
    for index in range(1, count + 1):
        offset += unpack_from(frames, offset)[0] + SIZE_BYTES
        offsets[index] = offset
    return offsets
