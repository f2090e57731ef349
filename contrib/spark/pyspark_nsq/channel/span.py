"""A span: consecutive messages of one nsqd, in the frames in which they came."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pyspark_nsq.frames import ATTEMPTS_AT, BODY_AT, ID_AT, TIMESTAMP_AT, size_of_all, starts_of

_MOST_SIZES = 256


class Span:
    """
    `count` messages in `frames`, in whole frames. `first` is the number of the first one in the spool, and 0 as long as
    they are in none.

    Two spans are never equal: a connection keeps those that are not finished in a set.
    """

    __slots__ = ("_fins", "_ids", "_starts", "count", "first", "frames", "nsqd")

    def __init__(self, nsqd: str, count: int, frames: bytes, first: int = 0, starts: array[int] | None = None) -> None:
        self.nsqd, self.count, self.frames, self.first = nsqd, count, frames, first
        self._starts = starts
        self._ids: list[bytes] | None = None
        self._fins: bytes | None = None

    def __reduce__(self) -> tuple[type[Span], tuple[str, int, bytes, int]]:
        return Span, (self.nsqd, self.count, self.frames, self.first)

    @property
    def starts(self) -> array[int]:
        """The offset of each frame, and the end of the last one. Raises ReadError."""
        if self._starts is None:
            self._starts = starts_of(self.frames, self.count)
        return self._starts

    @property
    def ids(self) -> list[bytes]:
        """The ids of the messages. Raises ReadError."""
        if self._ids is None:
            self._ids = self._find_ids()
        return self._ids

    @property
    def fins(self) -> bytes:
        """The commands that finish the messages. Raises ReadError."""
        if self._fins is None:
            self._fins = b"FIN %b\n" % b"\nFIN ".join(self.ids)
        return self._fins

    def _find_ids(self) -> list[bytes]:
        frames = self.frames
        size = 0 if self._starts is not None else size_of_all(frames, self.count)
        if size:
            return [message_id for (message_id,) in _id_in(size).iter_unpack(frames)]
        return [frames[at + ID_AT : at + BODY_AT] for at in self.starts[: self.count]]

    @property
    def first_timestamp_ns(self) -> int:
        """The time at which the first message was published, since 1970."""
        return int.from_bytes(self.frames[TIMESTAMP_AT:ATTEMPTS_AT], "big")

    @property
    def body_bytes(self) -> int:
        return len(self.frames) - BODY_AT * self.count

    def fit(self, most_bytes: int) -> int:
        """Return the number of messages, from the first on, whose bodies have at most `most_bytes`."""
        starts = self.starts
        return bisect_right(range(1, self.count + 1), most_bytes, key=lambda at: starts[at] - BODY_AT * at)

    def part(self, low: int, high: int) -> Span:
        """Return the messages from the one at `low` to before the one at `high`, counted from 0."""
        if low == 0 and high == self.count:
            return self
        starts = self.starts
        return Span(self.nsqd, high - low, self.frames[starts[low] : starts[high]], self.first + low)

    def without(self, ids: set[bytes]) -> Span:
        """Return the messages whose ids are not in `ids`, each once, and add their ids to `ids`."""
        kept = []
        for at, message_id in enumerate(self.ids):
            if message_id not in ids:
                ids.add(message_id)
                kept.append(self.frames[self.starts[at] : self.starts[at + 1]])
        return Span(self.nsqd, len(kept), b"".join(kept))


def joined(spans: Iterable[Span], most_bytes: int) -> Iterator[Span]:
    """Join consecutive spans of one nsqd, up to about `most_bytes` of frames."""
    some: list[Span] = []
    size = 0
    for span in spans:
        if some and (span.nsqd != some[0].nsqd or size + len(span.frames) > most_bytes):
            yield _one(some)
            some, size = [], 0
        some.append(span)
        size += len(span.frames)
    if some:
        yield _one(some)


def _one(spans: list[Span]) -> Span:
    if len(spans) == 1:
        return spans[0]
    frames = b"".join([span.frames for span in spans])
    return Span(spans[0].nsqd, sum(span.count for span in spans), frames, spans[0].first)


@lru_cache(_MOST_SIZES)
def _id_in(size: int) -> struct.Struct:
    """Return the struct of a frame of this size from which only the id is unpacked."""
    return struct.Struct(f"{ID_AT}x{BODY_AT - ID_AT}s{size - BODY_AT}x")
