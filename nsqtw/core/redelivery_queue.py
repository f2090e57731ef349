"""
The redelivery queue of a cursor: the messages that are ready and are not unread ones.

Theory of operation. A requeued message waits with a *mark*, a sequence that the cursor's `next` has to reach first:
min(released, next + mem_queue_size). So a message that fails again and again does not keep a consumer with RDY 1 busy
alone, and does not wait behind ten million others either. Marks never fall, so the queue in order of arrival is in
order of marks. With priorities `next` may stand still for long, and marks are counts of messages, which `taken_total`
has to reach. The queue does not know which of the two it is: the cursor tells how far it is (`reached`) and how far it
can go now (`end`).

Deferred messages join the queue when they become due; when it already has a page of them, as they are needed
(`core.pending`).
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from nsqtw.core.pending import PendingStore
from nsqtw.core.place import Place
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError

_OLDEST_OF = 1000
"""Messages that are looked at for the oldest one."""


class RedeliveryQueue:
    """
    The redelivery queue of a cursor of `topic`, whose pending rows are `pending`. A message in it keeps its row, unless
    a method says that it finishes the message.
    """

    def __init__(self, topic: TopicLog, pending: PendingStore) -> None:
        self._topic = topic
        self._pending = pending
        self._page_rows = topic.context.page_rows
        self._queue: deque[tuple[int, int]] = deque()  # mark, sequence
        self._is_restored = False  # and has not looked yet at what has become due since it was saved
        self.restored_count = 0
        """How many of the oldest ones nsqd would have read from disk."""

    @property
    def count(self) -> int:
        return len(self._queue) + self._pending.due_behind_count

    @property
    def is_empty(self) -> bool:
        return not self._queue and not self._pending.due_behind_count

    @property
    def is_being_saved(self) -> bool:
        """Whether the next ones cannot be read because they are being saved."""
        return self._pending.is_blocked and not self._queue

    def first_sequences(self) -> list[int]:
        """Return the sequences of the first _OLDEST_OF messages."""
        return [sequence for _, sequence in islice(self._queue, _OLDEST_OF)]

    def count_below(self, sequence: int) -> int:
        """Return how many messages before `sequence` are here, without those that `PendingStore` counts as due."""
        return sum(other < sequence for _, other in self._queue)

    def add(self, sequence: int, reached: int, end: int) -> None:
        """A message is requeued."""
        self._queue.append((self._mark(reached, end), sequence))

    def add_due(self, now_ms: int, reached: int, end: int) -> None:
        """Add what has become due. BackendError, and what could be had is added."""
        pending, mark = self._pending, reached if self._is_restored else self._mark(reached, end)
        self._join(pending.take_due(now_ms), mark)
        while pending.is_low and len(self._queue) < self._page_rows and pending.read_on():
            self._join(pending.take_due(now_ms), mark)
        pending.count_due(now_ms)
        if self._is_restored:
            self._is_restored = False
            self.restored_count = self.count

    def first(self, reached: int, *, at_once: bool = False) -> int | None:
        """Return the message whose turn has come; with `at_once` the first one there is. BackendError."""
        queue, pending = self._queue, self._pending
        if pending.due_behind_count and len(queue) < -(-self._page_rows // 2):
            pending.read_on()
            self._join(pending.take_counted(), queue[-1][0] if queue else reached)
        if queue and (at_once or queue[0][0] <= reached):
            return queue[0][1]
        return None  # or what is there is being saved

    def take(self) -> None:
        """Remove what `first` returned."""
        self._queue.popleft()
        if self.restored_count:
            self.restored_count -= 1

    def take_back(self, sequences: Sequence[int], reached: int) -> None:
        """Put messages before all others."""
        for sequence in sequences:
            self._pending.move(sequence, Place.REQUEUED)
        self._queue.extendleft([(reached, sequence) for sequence in reversed(sequences)])

    def serve_at_once(self, reached: int) -> None:
        """Let no message wait for its mark."""
        self._queue = deque((reached, sequence) for _, sequence in self._queue)

    def drop(self, count: int, reached: int) -> list[int]:
        """Finish up to `count` messages, the first ones first. Returns them. BackendError, and none is finished."""
        dropped: list[int] = []
        try:
            while len(dropped) < count and (sequence := self.first(reached, at_once=True)) is not None:
                self._queue.popleft()
                self._pending.finish(sequence)
                dropped.append(sequence)
                self.limit_restored_count()
        except BackendError:
            if not dropped:
                raise
        return dropped

    def remove(self, sequences: set[int]) -> None:
        self._queue = deque([entry for entry in self._queue if entry[1] not in sequences])

    def limit_restored_count(self) -> None:
        """Messages that waited here, or were to come here, were dropped."""
        self.restored_count = min(self.restored_count, self.count)

    def forget(self) -> None:
        """There are no messages any more."""
        self._queue.clear()
        self._is_restored = False
        self.restored_count = 0

    def forget_from(self, start: int) -> None:
        """Remove the messages from a sequence on."""
        self._queue = deque([entry for entry in self._queue if entry[1] < start])
        self.restored_count = min(self.restored_count, len(self._queue))

    def restore(self, sequences: Iterable[int], reached: int) -> None:
        """Start with messages that were in flight. The next `add_due` adds ready ones."""
        self._join(sequences, reached)
        self._is_restored = True

    # -- inside

    def _mark(self, reached: int, end: int) -> int:
        return min(end, reached + max(1, self._topic.mem_queue_size))

    def _join(self, sequences: Iterable[int], mark: int) -> None:
        self._queue.extend([(mark, sequence) for sequence in sequences])
