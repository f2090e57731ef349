"""
Coalescing of a consumer's FINs: the number of FINs after which the socket is read.

Theory of operation. Many clients write each FIN by itself. A broker that reads each of them at once serves, writes and
waits for every single one, on a core that the consumer could use. A client with many messages in flight does not wait
for any of that: its FINs may collect in the socket, without waking the broker, until they are a share of its messages
in flight. That delays its next messages by the same share of the time it needs for one.

FINs are coalesced when they arrive one by one and so fast that a share arrives within milliseconds. A read with
fewer FINs means that the connection has waited long enough. Then the share starts again with half of what came: the
client's kernel sends only so many packets without an acknowledgement (its congestion window), and data that is not read
is not acknowledged. If even that number is small, the client does not continue, or its kernel sends nothing before the
last packet is acknowledged (Nagle's algorithm); then coalescing pauses, twice as long each time in a row.

Performance: called once per chunk of a consumer.
"""

# mypyc: compiled

from __future__ import annotations

from typing import Final

from nsqtw.core.segment import ID_BYTES

MIN_IN_FLIGHT: Final = 256
"""With fewer messages in flight, each FIN is read at once."""
SHARE_BITS: Final = 6
"""The share of a number with that many bits is 1; of the messages in flight it is a 64th to a 32nd."""
RATE_READS: Final = 8
"""The number of reads in a row that measure the rate of FINs."""
FLUSH_SECONDS: Final = 0.001
MIN_SHARE: Final = 8
"""A smaller share does not pay, and coalescing pauses."""
WINDOW_GROWTH: Final = 1 / 128
"""The growth of the share after each full one: a stall costs as much time as some hundred of them."""
MAX_REST_SECONDS: Final = 1.0
"""The pause after many stalls in a row."""
_UNLIMITED: Final = 65536.0
V2_FIN_BYTES: Final = len(b"FIN \n") + ID_BYTES


class FinCoalescing:
    """The coalescing of one consumer, whose FIN of one message has `fin_bytes`."""

    __slots__ = (
        "_answers",
        "_fin_bytes",
        "_max_share",
        "_reads",
        "_rest",
        "_rests_until",
        "_share",
        "_since",
        "min_read_bytes",
    )

    def __init__(self, fin_bytes: int = V2_FIN_BYTES) -> None:
        self._fin_bytes = fin_bytes
        self.min_read_bytes = 1
        """The number of bytes to wait for."""
        self._share = 1
        self._rest = FLUSH_SECONDS
        """The length of the next pause."""
        self._rests_until = 0.0
        self._max_share = _UNLIMITED
        """The largest share that this client's kernel sends."""
        self._reads = 0
        """Reads in a row with few FINs."""
        self._answers = 0
        """FINs in those reads, without the first one."""
        self._since = 0.0
        """The time of the first such read; while FINs are coalesced, of the last read."""

    def record(self, answers: int, in_flight: int, now: float) -> None:
        """Record a read of `answers` FINs (or REQs), after which `in_flight` messages are in flight."""
        if in_flight < MIN_IN_FLIGHT:
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
        """Count a read with few FINs. Coalesce when a share arrives within half of FLUSH_SECONDS at this rate."""
        if not self._reads:
            self._since, self._answers = now, 0
        else:
            self._answers += answers
        self._reads += 1
        if self._reads > RATE_READS:
            self._reads = 0
            if share * (now - self._since) <= self._answers * FLUSH_SECONDS / 2:
                self._gather(share, now)

    def _shrink(self, answers: int, now: float) -> None:
        """Restart with half of `answers`, which are fewer FINs than a share; or pause."""
        self._stop()
        self._max_share = answers / 2
        if self._max_share < MIN_SHARE:
            self._max_share = _UNLIMITED
            self._rests_until = now + self._rest
            self._rest = min(2 * self._rest, MAX_REST_SECONDS)

    def _gather(self, share: int, now: float) -> None:
        self._share, self._since = share, now
        self.min_read_bytes = share * self._fin_bytes

    def _stop(self) -> None:
        self.min_read_bytes, self._reads = 1, 0
