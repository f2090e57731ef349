"""The backend `dummy`: messages live in memory until they are trimmed, and are forgotten when it is closed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import takewhile
from threading import Lock
from typing import Any, cast

from zope.interface import implementer

from nsqtw.core.segment import Segment, only
from nsqtw.errors import BackendError, OptionError
from nsqtw.interfaces import IBackend, IBackendQueue, IBackendQueueFactory, IHeaderBackend, Report
from nsqtw.options.broker import Options

_WORTH = 4
"""A segment is reduced to its needed messages when there are fewer of them by this factor."""


@implementer(IBackendQueueFactory)
class DummyFactory:
    """Opens `DummyBackend`."""

    name = "dummy"
    summary = "memory only: whatever is not delivered when the broker stops is gone"
    argument_format = ""

    def open(self, argument: str, directory: str, options: Options, report: Report) -> IBackend:
        """IBackendQueueFactory API. Touches no file and reports nothing."""
        if argument:
            raise OptionError(f"the backend 'dummy' takes no argument, not {argument!r}")
        return DummyBackend()


@implementer(IBackend, IHeaderBackend)
class DummyBackend:
    """Keeps everything in memory. Nothing in it can fail."""

    in_thread = False

    def __init__(self) -> None:
        self._queues: dict[str, DummyQueue] = {}

    def topics(self) -> list[str]:
        """IBackend API"""
        return []

    def queue(self, topic: str) -> IBackendQueue:
        """IBackend API"""
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = DummyQueue(self._queues, topic)
        return queue

    def commit(
        self, writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool
    ) -> dict[Any, BackendError]:
        """IBackend API"""
        for queue, segments in writes:
            cast(DummyQueue, queue).append(segments)
        return {}

    def close(self) -> None:
        """IBackend API"""
        for queue in list(self._queues.values()):
            queue.close()


@implementer(IBackendQueue)
class DummyQueue:
    """The segments of one topic, ascending. The list is read without a lock: trim puts another in its place."""

    def __init__(self, queues: dict[str, DummyQueue], topic: str) -> None:
        self._queues = queues
        self._topic = topic
        self._segments: list[Segment] = []
        self._lock = Lock()
        self.end = 0
        self.size = 0

    @property
    def first(self) -> int:
        """IBackendQueue API"""
        segments = self._segments
        return segments[0].first if segments else self.end

    def append(self, segments: Sequence[Segment]) -> None:
        """Keep segments, which ascend."""
        with self._lock:
            self._segments += segments
            self.size += _bytes_of(segments)
            if segments:
                self.end = segments[-1].end

    def read(self, start: int, limit: int) -> list[Segment]:
        """IBackendQueue API"""
        segments = self._segments
        parts: list[Segment] = []
        for number in range(bisect_right(segments, start, key=_end), len(segments)):
            segment = segments[number]
            if parts and len(segment.frames) > limit:
                break
            parts.append(segment)
            limit -= len(segment.frames)
        return parts

    def trim(self, below: int, keep: Iterable[int]) -> None:
        """IBackendQueue API"""
        segments = self._segments
        old = segments[: bisect_right(segments, below, key=_end)]
        if not old:
            return
        kept_sequences = list(takewhile(lambda sequence: sequence < below, keep))
        kept = [part for segment in old for part in _what_is_left(segment, kept_sequences)]
        with self._lock:
            self._segments = kept + self._segments[len(old) :]
            self.size += _bytes_of(kept) - _bytes_of(old)

    def delete(self) -> None:
        """IBackendQueue API"""
        self.close()

    def close(self) -> None:
        """IBackendQueue API"""
        with self._lock:
            self._segments = []
            self.size = 0
        self._queues.pop(self._topic, None)


def _what_is_left(segment: Segment, kept_sequences: Sequence[int]) -> list[Segment]:
    of_segment = kept_sequences[bisect_left(kept_sequences, segment.first) : bisect_left(kept_sequences, segment.end)]
    if len(of_segment) * _WORTH > segment.count:
        return [segment]
    return only(segment, of_segment)


def _end(segment: Segment) -> int:
    return segment.end


def _bytes_of(segments: Iterable[Segment]) -> int:
    return sum([len(segment.frames) for segment in segments])
