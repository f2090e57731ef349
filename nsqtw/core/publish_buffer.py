"""
Publish buffer of a topic: the bodies of this turn, and the waiters for their result.

`seal` encodes the bodies as segments, one run of equal delays at a time, and gives each its position in the log.
Sequences are taken from the broker in blocks (`sequences`).

Performance: called once per publish command.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsqtw.core.context import Context
from nsqtw.core.segment import Segment, cuts, encode, sizes_of
from nsqtw.core.sequences import BLOCK_SIZE
from nsqtw.interfaces import Waiter


class PublishBuffer:
    """The publishes of one topic."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._runs: list[tuple[int, list[bytes]]] = []
        """Delay in ms and bodies, neighbours with one delay in one run."""
        self._earlier = 0
        """Messages in all runs but the last one."""
        self.waiters: list[Waiter] = []
        self._next_sequence = self._block_end = 0

    def add(self, bodies: Sequence[bytes], delay_ms: int, waiter: Waiter) -> None:
        """Take messages."""
        runs = self._runs
        if runs and runs[-1][0] == delay_ms:
            runs[-1][1].extend(bodies)
        else:
            self._earlier += len(runs[-1][1]) if runs else 0
            runs.append((delay_ms, [*bodies]))
        self.waiters.append(waiter)

    def count(self) -> int:
        """Return how many messages were taken in this turn."""
        return self._earlier + (len(self._runs[-1][1]) if self._runs else 0)

    def take_waiters(self) -> list[Waiter]:
        """Return the waiters of the last `seal`; the caller answers them."""
        waiters, self.waiters = self.waiters, []
        return waiters

    def seal(self, timestamp_ns: int) -> list[Segment]:
        """Return the bodies of this turn as segments. BackendError when no block of sequences can be reserved."""
        runs = self._runs
        self.forget()
        node_id = self._context.node_id
        segments: list[Segment] = []
        for delay_ms, bodies in runs:
            if not bodies:
                continue
            sizes = sizes_of(bodies)
            for chunk in cuts(bodies, sizes):
                segments.append(encode(chunk, self._take_sequences(len(chunk)), node_id, timestamp_ns, delay_ms, sizes))
        return segments

    def forget(self) -> None:
        """Drop the messages; their waiters still have to be answered."""
        self._runs = []
        self._earlier = 0

    def _take_sequences(self, count: int) -> int:
        if self._next_sequence + count > self._block_end:
            blocks = -(-count // BLOCK_SIZE)
            self._next_sequence = self._context.sequences.take(blocks) * BLOCK_SIZE
            self._block_end = self._next_sequence + blocks * BLOCK_SIZE
        first = self._next_sequence
        self._next_sequence += count
        return first
