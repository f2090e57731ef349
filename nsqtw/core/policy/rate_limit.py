"""
Rate limit of a channel: a token bucket, one token for each delivery.

The bucket holds the tokens of one second, at least one, and is full when the channel begins. It is kept as one number,
the time at which it was empty, so that the tokens at `now` are (now - empty at) * rate, and nothing has to be refilled.

When the bucket is empty and more could be delivered, a timer wakes the channel when the next token is there. At more
than MAX_WAKES tokens a second it waits for several of them, and so wakes the channel at most MAX_WAKES times a second.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from nsqtw.core.timers import Timer, TimerQueue

MAX_WAKES: Final = 100
_ROUNDING: Final = 1e-6
"""A token that lacks no more than this is complete: a timer that was set for it must find it."""


class RateLimit(Timer):
    """At most `rate` deliveries a second. `wake` serves the channel at the end of the turn."""

    def __init__(self, rate: float, timers: TimerQueue, wake: Callable[[], None]) -> None:
        super().__init__()
        self._timers = timers
        self._wake = wake
        self._empty_at = -inf
        self.rate = rate

    def available(self, now: float) -> int:
        """Return how many messages may be delivered now."""
        self._empty_at = max(self._empty_at, now - max(1.0, 1.0 / self.rate))
        return int((now - self._empty_at) * self.rate + _ROUNDING)

    def spend(self, count: int) -> None:
        """`count` messages, which were available, are delivered."""
        self._empty_at += count / self.rate

    def wait(self) -> None:
        """Have the channel woken when the next message may be delivered."""
        tokens = max(1.0, self.rate / MAX_WAKES)
        self._timers.schedule(self._empty_at + tokens / self.rate, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API: there are tokens."""
        self._wake()
        return None

    def close(self) -> None:
        """The channel is not limited any more, or is deleted."""
        self._timers.cancel(self)
