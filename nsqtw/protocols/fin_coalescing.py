"""
Coalescing of a consumer's FINs: the number that is worth a read.

Theory of operation. Many clients write each FIN by itself. Read at once, it makes the broker serve, write and wait for
every single one, on a core that the consumer could use. One that has much in flight waits for none of that: its FINs
may gather in its socket, where they wake nobody, until they are a share of what it has in flight. So what it is given
next comes later by that share of the time it takes for a message, whatever that time is.

That is done for FINs that come one by one and fast, so that a share is there in less than a moment. A read that brings
less, later, is the edge's, which has waited for long enough. Then all begins anew, with half of what came for a share:
the client's kernel has only so many packets on their way that are not acknowledged (its congestion window), and what is
not read is not answered either. Where even that is few, it is the client that does not go on, or its kernel sends
nothing at all before the last packet is acknowledged (Nagle's algorithm); that is not tried again for a moment, and for
twice as long each time in a row.

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
FLUSH_SECONDS: Final = 0.001
MIN_IN_FLIGHT: Final = 8
"""A smaller share is not worth it."""
WINDOW_GROWTH: Final = 1 / 128
"""What a share may have more after each that came: a stall costs as much time as some hundred of them take."""
MAX_REST_SECONDS: Final = 1.0
"""Of one of whom it was in vain many times."""
_UNLIMITED: Final = 65536.0
_FIN_BYTES: Final = len(b"FIN \n") + ID_BYTES


class FinCoalescing:
    """That of one consumer."""

    __slots__ = ("_answers", "_max_share", "_reads", "_rest", "_rests_until", "_share", "_since", "min_read_bytes")

    def __init__(self) -> None:
        self.min_read_bytes = 1
        """How many bytes are worth a read."""
        self._share = 1
        self._rest = FLUSH_SECONDS
        """How long it is not tried when it was in vain."""
        self._rests_until = 0.0
        self._max_share = _UNLIMITED
        """What a share may have for this client's kernel."""
        self._reads = 0
        """How many in a row brought few."""
        self._answers = 0
        """What those after the first one brought."""
        self._since = 0.0
        """When the first of them was, or the last one at all while FINs gather."""

    def record(self, answers: int, in_flight: int, now: float) -> None:
        """A read brought so many FINs (or REQs), and `in_flight` messages are still in flight."""
        if in_flight < MUCH:
            self._stop()
            return
        share = min(1 << (in_flight.bit_length() - SHARE_BITS), int(self._max_share))
        if self.min_read_bytes > 1:
            if answers >= self._share:
                self._rest = FLUSH_SECONDS
                self._max_share = min(self._max_share + WINDOW_GROWTH, _UNLIMITED)
            elif now - self._since > FLUSH_SECONDS:
                self._shrink(answers, now)
                return
            self._gather(share, now)
        elif answers >= share:
            self._reads = 0
        elif answers and now >= self._rests_until:
            self._account_memory(answers, share, now)

    def _account_memory(self, answers: int, share: int, now: float) -> None:
        """One more read that brought few: whether a share is there in half a moment, as they come now."""
        if not self._reads:
            self._since, self._answers = now, 0
        else:
            self._answers += answers
        self._reads += 1
        if self._reads > READS:
            self._reads = 0
            if share * (now - self._since) <= self._answers * FLUSH_SECONDS / 2:
                self._gather(share, now)

    def _shrink(self, answers: int, now: float) -> None:
        """A share has not come, but only so many."""
        self._stop()
        self._max_share = answers / 2
        if self._max_share < MIN_IN_FLIGHT:
            self._max_share = _UNLIMITED
            self._rests_until = now + self._rest
            self._rest = min(2 * self._rest, MAX_REST_SECONDS)

    def _gather(self, share: int, now: float) -> None:
        self._share, self._since = share, now
        self.min_read_bytes = share * _FIN_BYTES

    def _stop(self) -> None:
        self.min_read_bytes, self._reads = 1, 0
