"""
The next messages of a channel with an order, and its delivered ones: messages in runs, each with its key.

Performance: called once per span.
"""

# mypyc: compiled

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from typing import Final

from nsqtw.core.policy.gathered import gather, mask
from nsqtw.core.policy.message_keys import Keys
from nsqtw.core.segment import Segment, Span

_NONE_WAIT: Final[Sequence[int]] = ()


class KeyedRun:
    """Messages in ascending order, with the key of each. They are taken from the front."""

    __slots__ = ("_keys", "_sequences", "_taken")

    def __init__(self, sequences: Sequence[int], keys: Keys) -> None:
        self._sequences = sequences
        self._keys = keys
        self._taken = 0

    @property
    def count(self) -> int:
        """The number of messages that are left."""
        return len(self._keys) - self._taken

    @property
    def sequences(self) -> Sequence[int]:
        """The sequences of those that are left."""
        return self._sequences[self._taken :] if self._taken else self._sequences

    @property
    def keys(self) -> Keys:
        """The keys of those that are left."""
        return self._keys[self._taken :] if self._taken else self._keys

    def sequence_at(self, index: int) -> int:
        """Return the sequence of one of those that are left."""
        return self._sequences[self._taken + index]

    def take(self, count: int) -> KeyedRun:
        """Take the first `count` messages of those that are left."""
        start, stop = self._taken, self._taken + count
        self._taken = stop
        if count == len(self._keys):
            return KeyedRun(self._sequences, self._keys)
        return KeyedRun(self._sequences[start:stop], self._keys[start:stop])


class Choice(KeyedRun):
    """Messages that are delivered next: those of `segment` from the index `start` on."""

    __slots__ = ("_segment", "_start")

    def __init__(self, segment: Segment, start: int, sequences: Sequence[int], keys: Keys) -> None:
        super().__init__(sequences, keys)
        self._segment = segment
        self._start = start

    @property
    def span(self) -> Span:
        """Those that are left."""
        return Span(self._segment, self._start + self._taken, self._start + len(self._keys))


class LogChoice(Choice):
    """
    The messages of a span of the log up to the index `stop`, without those at the indexes `waiting`, which have to wait
    for their key. `keys` are those of the whole segment.
    """

    __slots__ = ("_all_keys", "_at", "_log_segment", "_span_stop", "_stop", "_waited", "_waiting")

    def __init__(self, span: Span, stop: int, keys: Keys, waiting: Sequence[int] = _NONE_WAIT) -> None:
        segment, start, span_stop = span
        if not waiting:
            first = segment.first
            super().__init__(segment, start, range(first + start, first + stop), keys[start:stop])
        elif len(waiting) == stop - start:
            super().__init__(segment, 0, (), ())
        else:
            gathered = gather(segment, start, stop, waiting)
            free = [*compress(keys[start:stop], mask(start, stop, waiting))]
            super().__init__(gathered, 0, gathered.sequences, free)
        self._log_segment = segment
        self._at = start
        self._stop = stop
        self._span_stop = span_stop
        self._all_keys = keys
        self._waiting = waiting
        self._waited = 0

    @property
    def waiting_count(self) -> int:
        """The number of messages that wait, of what is left."""
        return len(self._waiting) - self._waited

    def is_of(self, span: Span) -> bool:
        """Return whether what is left is the begin of a span."""
        return self._log_segment is span.segment and self._at == span.start and self._span_stop == span.stop

    def take_from_log(self, count: int) -> tuple[int, KeyedRun, KeyedRun]:
        """
        Take the first `count` messages of those that are left. Returns how many messages of the log are passed with
        them, those taken, and those that wait.
        """
        segment, keys = self._log_segment, self._all_keys
        stop = self._stop if count == self.count else self.sequence_at(count - 1) + 1 - segment.first
        passed, self._at = stop - self._at, stop
        last = bisect_left(self._waiting, stop, self._waited)
        waiting = self._waiting[self._waited : last]
        self._waited = last
        waits = KeyedRun([segment.first + index for index in waiting], [keys[index] for index in waiting])
        return passed, self.take(count), waits
