"""
A topic's log: what its backend keeps, with the newest part of it in memory.

Theory of operation. Committed segments go to the tail, a sorted list, and into the broker's one `Cache`, which has a
budget of bytes and drops the oldest segment of any topic first. A segment that is no longer in the tail is read from
the backend in blocks; the last blocks stay in the same cache, so several channels that follow each other through a
backlog read it once. Segments that are not committed yet (durability class `memory`) are `pinned`: they are in the tail
and not in the cache, and so are not dropped.

Performance: called once per segment.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from nsqtw.core.segment import SEGMENT_BYTES, Segment, merge
from nsqtw.errors import HeadersRefused
from nsqtw.interfaces import IBackend, IBackendQueue, IDirectedQueue, IHeaderBackend

CACHE_BYTES: Final = 64 * 1024 * 1024
MAX_BLOCKS: Final = 32
# What a segment in the tail costs beside its frames: the object with its list entries, and the offsets of messages of
# different lengths once asked for.
_SEGMENT_COST: Final = 320
_MESSAGE_COST: Final = 40
_HEADERS_COST: Final = 48
"""An object for the headers of a message."""


class Cache:
    """The newest segments of all logs, oldest forgotten first, and the blocks read last."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.used = 0
        # Of each segment its log and its cost. Not as pairs: the garbage collector would look at a third more.
        self._logs: deque[Log] = deque()
        self._costs: deque[int] = deque()
        self._blocks: OrderedDict[tuple[int, int], list[Segment]] = OrderedDict()
        self._ends: dict[int, int] = {}
        """The highest end of the blocks of each log. A reader that reads on beyond it, as most do, needs no search."""

    def add(self, log: Log, segments: Sequence[Segment]) -> None:
        """Count segments that were appended to the tail of `log`."""
        for segment in segments:
            cost = len(segment.frames) + _SEGMENT_COST + _MESSAGE_COST * segment.count
            if segment.headers is not None:
                cost += segment.header_bytes + _HEADERS_COST * segment.count
            self._logs.append(log)
            self._costs.append(cost)
            self.used += cost
        while self.used > self.limit:
            self.used -= self._costs.popleft()
            self._logs.popleft().forget_oldest()

    def block(self, log: Log, sequence: int) -> list[Segment] | None:
        """A block read before that contains `sequence`, or that was read from there on."""
        key = (id(log), sequence)
        if key in self._blocks:
            self._blocks.move_to_end(key)
            return self._blocks[key]
        if sequence >= self._ends.get(id(log), 0):
            return None
        for (owner, _), block in self._blocks.items():
            if owner == id(log) and block[0].first <= sequence < block[-1].end:
                return block
        return None

    def keep_block(self, log: Log, sequence: int, block: list[Segment]) -> None:
        """Remember a block that was read from `sequence` on."""
        self._blocks[id(log), sequence] = block
        self._ends[id(log)] = max(block[-1].end, self._ends.get(id(log), 0))
        if len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)

    def forget_blocks(self, log: Log) -> None:
        """The log is gone: another one may get its address in memory."""
        for key in [key for key in self._blocks if key[0] == id(log)]:
            del self._blocks[key]
        self._ends.pop(id(log), None)


class Log:
    """
    The segments of one topic, by sequence. `end` is one past the highest sequence that may be read. `is_in_memory`: the
    backend is the one of ephemeral topics.
    """

    def __init__(self, backend: IBackend, queue: IBackendQueue, cache: Cache, *, is_in_memory: bool = False) -> None:
        self.backend = backend
        self.is_in_thread = bool(backend.in_thread)
        self.stores_headers = bool(IHeaderBackend.providedBy(backend))
        self.queue = queue
        self.is_in_memory = is_in_memory
        self.end: int = queue.end
        self._cache = cache
        self.reads = 0
        """The number of reads of the backend."""
        self._tail: list[Segment] = []
        self._firsts: list[int] = []
        self._start = 0

    def append(self, segments: Sequence[Segment], *, pinned: bool = False) -> None:
        """Take committed segments, or with `pinned` ones whose commit comes later (`committed`)."""
        self._tail += segments
        self._firsts += [segment.first for segment in segments]
        self.end = segments[-1].end if segments else self.end
        if not pinned:
            self._cache.add(self, segments)

    def committed(self, segments: Sequence[Segment]) -> None:
        """Pinned segments, all there are, oldest first, need not be kept in memory any more."""
        self._cache.add(self, segments)

    def forget_oldest(self) -> None:
        """The cache has dropped the oldest segment of the tail."""
        if self._start >= len(self._tail):
            return
        self._firsts[self._start] = -1
        self._tail[self._start] = _FORGOTTEN
        self._start += 1
        if self._start > 64 and self._start * 2 > len(self._tail):
            del self._tail[: self._start], self._firsts[: self._start]
            self._start = 0

    def following(self, sequence: int) -> list[Segment]:
        """
        Some segments in order, from the one that contains `sequence` or else the next one after it; [] at the end.
        BackendError when the medium fails.
        """
        tail, start = self._tail, self._start
        if start < len(tail) and sequence >= self._firsts[start]:
            index = bisect_right(self._firsts, sequence, start) - 1
            if tail[index].end <= sequence:
                index += 1
            return self._some_of_tail(index)
        block = self._cache.block(self, sequence)
        if block is None:
            block = self._read(sequence, SEGMENT_BYTES)
            if not block:
                return self._some_of_tail(start)
        return [segment for segment in block if segment.end > sequence]

    def has_in_memory(self, sequence: int) -> bool:
        """Return whether `read` finds that sequence without the backend."""
        return self._start < len(self._tail) and sequence >= self._firsts[self._start]

    def read(self, sequence: int, limit: int) -> list[Segment]:
        """
        Like `following`, for a reader that reads once: about `limit` bytes. Segments read from the backend are not
        cached, and small ones are not merged.
        """
        tail, start = self._tail, self._start
        if start < len(tail) and sequence >= self._firsts[start]:
            index = bisect_right(self._firsts, sequence, start) - 1
            return self._some_of_tail(index + (tail[index].end <= sequence), limit)
        return self._stored(sequence, limit) or self._some_of_tail(start, limit)

    def directed(self, sequence: int) -> tuple[list[tuple[int, int, str]], int]:
        """
        Return the segments for one channel only in a part of the log, from the one with `sequence` on: first, one past
        the last, channel; and the end of this part. BackendError.
        """
        if not self.has_in_memory(sequence) and IDirectedQueue.providedBy(self.queue):
            runs, reached = self.queue.directed(sequence)
            if reached > sequence:
                return runs, reached
        segments = self.read(sequence, SEGMENT_BYTES)
        if not segments:
            return [], self.end
        return [(one.first, one.end, one.channel) for one in segments if one.channel], segments[-1].end

    def find(self, sequence: int) -> tuple[Segment, int] | None:
        """
        The segment that contains `sequence` and its index in there; None when it is not there any more.
        BackendError when the medium fails.
        """
        segments, firsts, start = self._tail, self._firsts, self._start
        if start >= len(segments) or sequence < firsts[start]:
            segments = self._cache.block(self, sequence) or self._read(sequence, SEGMENT_BYTES)
            index = bisect_right(segments, sequence, key=_first) - 1
        else:
            index = bisect_right(firsts, sequence, start) - 1
        if index >= 0 and sequence < segments[index].end:
            return segments[index], sequence - segments[index].first
        return None

    def move(self, backend: IBackend, name: str) -> None:
        """Keep everything, and what is appended later, in `backend`, which has nothing of this name. BackendError."""
        queue = backend.queue(name)
        segments = self.queue.read(0, max(1, self.queue.size))
        stores_headers = bool(IHeaderBackend.providedBy(backend))
        if not stores_headers and any(segment.headers is not None or segment.channel for segment in segments):
            raise HeadersRefused
        if segments:
            for failure in backend.commit([(queue, segments)], False).values():
                raise failure
        self.queue.delete()
        self.backend, self.queue, self.is_in_memory = backend, queue, False
        self.is_in_thread, self.stores_headers = bool(backend.in_thread), stores_headers
        self._cache.forget_blocks(self)

    def close(self) -> None:
        """The topic is gone, or the broker stops."""
        self._tail.clear()
        self._firsts.clear()
        self._start = 0
        self._cache.forget_blocks(self)

    def _some_of_tail(self, index: int, limit: int = SEGMENT_BYTES) -> list[Segment]:
        """Return about SEGMENT_BYTES: a cursor that keeps the segments keeps them in memory."""
        stop, size = index, 0
        while stop < len(self._tail) and size < limit:
            size += len(self._tail[stop].frames)
            stop += 1
        return self._tail[index:stop]

    def _read(self, sequence: int, limit: int) -> list[Segment]:
        """A block from the backend, small segments merged."""
        self.reads += 1
        block = merge(self._stored(sequence, limit))
        if block:
            self._cache.keep_block(self, sequence, block)
        return block

    def _stored(self, sequence: int, limit: int) -> list[Segment]:
        """Read what the backend has before the tail."""
        read = self.queue.read(sequence, limit)
        if self._start < len(self._tail):
            border = self._firsts[self._start]
            read = [segment for segment in read if segment.first < border]
        return read


_first = attrgetter("first")
_FORGOTTEN: Final = Segment(0, 0, 0, b"")
