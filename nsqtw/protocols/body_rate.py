"""
Rate of a body that is only partly received.

A body may be large and the link slow, so no time is long enough for every body; and one that comes a byte at a time
must not be waited for. The bytes since the last check count.
"""

# mypyc: compiled

from __future__ import annotations


class BodyRate:
    """One body after the other on one connection; `rate` is bytes a second that are enough."""

    __slots__ = ("_looked_at", "_rate", "_received", "_started_at", "until")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._started_at = self._looked_at = -1.0
        self._received = 0
        self.until = 0.0
        """The time of the next check."""

    def goes_on(self, started: float, received: int, now: float, timeout: float) -> bool:
        """
        Return whether enough bytes of a body that began at `started` arrived since the last check; if so, the next
        check is `timeout` seconds later. `received` is the number of its bytes that have arrived.
        """
        if started != self._started_at:
            self._started_at = self._looked_at = started
            self._received = 0
        enough = received - self._received >= self._rate * (now - self._looked_at)
        self._looked_at, self._received = now, received
        self.until = now + timeout if enough else now
        return enough
