"""
What a topic was given in this turn: bodies, and who waits to hear what became of them.

Sealing makes segments of the bodies, a run of one delay at a time, and gives each its place in the log. Sequences are
taken from the broker in blocks.

This module is hot, once per publish command.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from nsqtw.core.segment import Segment, cuts, encode
from nsqtw.interfaces import Waiter

if TYPE_CHECKING:
    from nsqtw.core.broker import Broker

BLOCK_SIZE = 1 << 20
"""Sequences a topic takes from the broker at a time."""


class Intake:
    """The publishes of one topic of `broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._bodies: list[tuple[int, Sequence[bytes]]] = []
        self._counted = self._counted_bodies = 0
        """How many entries of `_bodies` were looked at to count them, and how many messages are in these."""
        self.waiters: list[Waiter] = []
        self._next_sequence = self._block_end = 0

    def add(self, bodies: Sequence[bytes], delay_ms: int, waiter: Waiter) -> None:
        """Take messages."""
        self._bodies.append((delay_ms, bodies))
        self.waiters.append(waiter)

    def count(self) -> int:
        """How many messages were taken in this turn. Only those are counted that were not at the last call."""
        self._counted_bodies += sum(len(bodies) for _, bodies in self._bodies[self._counted :])
        self._counted = len(self._bodies)
        return self._counted_bodies

    def take_waiters(self) -> list[Waiter]:
        """Those whose messages the last `seal` gave; whoever takes them answers them."""
        waiters, self.waiters = self.waiters, []
        return waiters

    def seal(self, timestamp_ns: int) -> list[Segment]:
        """What was taken since the last time, as segments. BackendError when no block of sequences can be had."""
        collected = self._bodies
        self.forget()
        segments = []
        for delay_ms, runs in groupby(collected, key=itemgetter(0)):
            lists = [bodies for _, bodies in runs]
            bodies = lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))
            for cut in cuts(bodies):
                first = self._take_sequences(len(cut))
                segments.append(encode(cut, first, self._broker.node_id, timestamp_ns, delay_ms))
        return segments

    def forget(self) -> None:
        """Nobody wants the messages any more; those who wait still have to be answered."""
        self._bodies = []
        self._counted = self._counted_bodies = 0

    def _take_sequences(self, count: int) -> int:
        if self._next_sequence + count > self._block_end:
            blocks = -(-count // BLOCK_SIZE)
            self._next_sequence = self._broker.take_blocks(blocks) * BLOCK_SIZE
            self._block_end = self._next_sequence + blocks * BLOCK_SIZE
        first = self._next_sequence
        self._next_sequence += count
        return first
