"""
How many FINs of a consumer are worth a read.

Theory of operation. Many clients write each FIN by itself. Read at once, it makes the broker serve, write and wait for
every single one, on a core that the consumer could use. One that has much in flight waits for none of that: its FINs
may gather in its socket, where they wake nobody, until they are a share of what it has in flight. So what it is given
next comes later by that share of the time it takes for a message, whatever that time is.

That is done for FINs that come one by one and fast, so that a share is there in less than a moment. A read that brings
less, later, is the edge's, which has waited for long enough: then all begins anew, and takes twice as many reads after
each time that was in vain. A client whose kernel sends nothing while something is not acknowledged (Nagle's algorithm)
waits for us as we do for it.

This module is hot, once per chunk of a consumer.
"""

from __future__ import annotations

from typing import Final

from nsqtw.core.segment import ID_BYTES

MUCH: Final = 256
"""Messages in flight; of who has less each FIN is read at once."""
SHARE_BITS: Final = 6
"""A share of a number of that many bits is 1, and of what is in flight at least a 64th and at most a 32nd."""
READS: Final = 8
"""So many in a row show how fast they come."""
MOST_READS: Final = 65536
"""And so many after it was in vain several times."""
MOMENT_SECONDS: Final = 0.001
_FIN_BYTES: Final = len(b"FIN \n") + ID_BYTES


class Gathering:
    """That of one consumer."""

    __slots__ = ("_answers", "_needed", "_reads", "_share", "_since", "least_bytes")

    def __init__(self) -> None:
        self.least_bytes = 1
        """How many bytes are worth a read."""
        self._share = 1
        self._needed = READS
        """Reads that have to bring few."""
        self._reads = 0
        """How many in a row did, and the one before them."""
        self._answers = 0
        """What those brought."""
        self._since = 0.0
        """When the first of them was, or the last one at all while FINs gather."""

    def note(self, answers: int, left: int, now: float) -> None:
        """A read brought so many FINs (or REQs), and `left` messages are still in flight."""
        if left < MUCH:
            self._stop()
            return
        share = 1 << (left.bit_length() - SHARE_BITS)
        if self.least_bytes > 1:
            if answers >= self._share:
                self._needed = READS
            elif now - self._since > MOMENT_SECONDS:
                self._needed = min(2 * self._needed, MOST_READS)
                self._stop()
                return
            self._gather(share, now)
        elif answers >= share:
            self._reads = 0
        elif answers:
            self._weigh(answers, share, now)

    def _weigh(self, answers: int, share: int, now: float) -> None:
        """One more read that brought few: whether a share is there in half a moment, as they come now."""
        if not self._reads:
            self._since, self._answers = now, 0
        else:
            self._answers += answers
        self._reads += 1
        if self._reads > self._needed:
            self._reads = 0
            if share * (now - self._since) <= self._answers * MOMENT_SECONDS / 2:
                self._gather(share, now)

    def _gather(self, share: int, now: float) -> None:
        self._share, self._since = share, now
        self.least_bytes = share * _FIN_BYTES

    def _stop(self) -> None:
        self.least_bytes, self._reads = 1, 0
