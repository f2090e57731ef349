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
        self._waits_since: float | None = None
        self.rate = rate
        self.waited_seconds = 0.0
        """For how long messages waited that consumers were ready for, up to the end of the last wait."""

    def available(self, now: float) -> int:
        """Return how many messages may be delivered now."""
        self._empty_at = max(self._empty_at, now - max(1.0, 1.0 / self.rate))
        count = int((now - self._empty_at) * self.rate + _ROUNDING)
        if count:
            self._end_wait(now)
        return count

    def spend(self, count: int) -> None:
        """`count` messages, which were available, are delivered."""
        self._empty_at += count / self.rate

    def wait(self, now: float) -> None:
        """Messages wait for a token: have the channel woken when the next one may be delivered."""
        if self._waits_since is None:
            self._waits_since = now
        tokens = max(1.0, self.rate / MAX_WAKES)
        self._timers.schedule(self._empty_at + tokens / self.rate, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API: there are tokens."""
        self._end_wait(now)
        self._wake()
        return None

    def close(self) -> None:
        """The channel is not limited any more, or is deleted."""
        self._timers.cancel(self)

    def _end_wait(self, now: float) -> None:
        if self._waits_since is not None:
            self.waited_seconds += now - self._waits_since
            self._waits_since = None
