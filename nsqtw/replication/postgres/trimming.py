"""
Which segments of a topic a trim removes.

Theory of operation. A trim is requested about once a second for each topic that changed, and mostly there is nothing to
remove. So what the writer knows of the store is kept here, for each topic:

    0 ............ scanned ................. ready ..........
    segments that  no segment between these  a segment behind *scanned* may end here
    are needed:    ends below *ready*
    `_kept`

The database is asked only when all below *ready* may go, and for what is behind *scanned*. The segments in front of it
are in memory; when they become too many they are forgotten, and some time later all is read again. A trim looks at a
limited number of segments, and the next one goes on where it stopped. The more needed sequences one has read, the more
requests are skipped after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile
from math import inf

Span = tuple[int, int]
"""The first sequence of a segment, and one past its last one."""
Read = Callable[[int, int], Sequence[Span]]
"""Returns the segments whose first sequence is in a range, the first PAGE of them, in order."""
Remove = Callable[[Sequence[Span]], None]

PAGE = 5_000
_PAGES_AT_ONCE = 4
_MAX_KEPT = 10_000
_READ_AT_EACH_REQUEST = 10_000
_SKIPPED_BEFORE_ALL = 60


class Trimmed:
    """What is known of the segments of a topic. Made anew it knows nothing, and finds out."""

    def __init__(self) -> None:
        self._skipped = 0
        self._scanned = 0
        self._ready = 0
        self._kept: list[Span] = []
        self._has_forgotten = False

    def trim(self, below: int, keep: Iterable[int], read: Read, remove: Remove) -> None:
        """Remove what is not needed. After an error this object is of no use any more."""
        if self._skipped:
            self._skipped -= 1
        elif below >= self._ready or self._kept:
            wanted = _Wanted(keep)
            free = self._divide(self._kept, wanted)
            if free:
                remove(free)
            if below >= self._ready:
                self._scan(below, wanted, read, remove)
            self._skipped += wanted.count // _READ_AT_EACH_REQUEST

    def _scan(self, below: int, wanted: _Wanted, read: Read, remove: Remove) -> None:
        for _ in range(_PAGES_AT_ONCE):
            spans = read(self._scanned, below)
            over = next((span for span in spans if span[1] > below), None)
            whole = [span for span in spans if span[1] <= below]
            free = self._divide(whole, wanted)
            if free:
                remove(free)
            if over is not None:
                self._scanned, self._ready = over
            elif len(spans) == PAGE:
                self._scanned = spans[-1][1]
                continue
            else:
                self._scanned, self._ready = max(self._scanned, below), below + 1
            if self._has_forgotten:
                self._scanned, self._ready, self._kept, self._has_forgotten = 0, 0, [], False
                self._skipped = _SKIPPED_BEFORE_ALL
            return
        self._ready = 0

    def _divide(self, spans: Sequence[Span], wanted: _Wanted) -> list[Span]:
        """Return those that nobody needs, and remember the others."""
        needed = [span for span in spans if wanted.is_in(span)]
        if spans is self._kept:
            self._kept = []
        if len(self._kept) + len(needed) > _MAX_KEPT:
            self._has_forgotten = True
        else:
            self._kept += needed
        known = {*needed}
        return [span for span in spans if span not in known]


class _Wanted:
    """Ascending sequences, of which no more are read than are needed."""

    def __init__(self, sequences: Iterable[int]) -> None:
        self._rest: Iterator[int] = iter(sequences)
        self._next: float = -1
        self.count = 0

    def is_in(self, span: Span) -> bool:
        """Return whether one is in the span. The spans ascend."""
        first, end = span
        if self._next < first:
            self._next = next(dropwhile(lambda sequence: sequence < first, self._counted()), inf)
        return self._next < end

    def _counted(self) -> Iterator[int]:
        for sequence in self._rest:
            self.count += 1
            yield sequence
