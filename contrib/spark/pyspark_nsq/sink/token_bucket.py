"""A limit on the rate of messages."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """
    Allows `per_second` messages, and after a pause up to `capacity` at once. It begins full. A batch that is larger
    than the capacity waits until all of its messages are allowed.
    """

    def __init__(
        self,
        per_second: float,
        capacity: float = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._clock = clock
        self._sleep = sleep
        self._tokens = capacity
        self._filled_at = clock()

    def take(self, count: int) -> None:
        """Wait until `count` messages are allowed."""
        self._fill()
        self._tokens -= count
        while self._tokens < 0:
            self._sleep(-self._tokens / self._per_second)
            self._fill()

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
