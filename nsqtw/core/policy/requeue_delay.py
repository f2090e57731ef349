"""
Delay before a message is delivered again that was requeued without a delay of its own, or that timed out.

The delay doubles with each attempt, up to the longest one, and is then varied by up to a fifth in either direction, so
that what failed together does not come back together. The variation has few steps: many messages that time out together
become due at a few times, and not each by a timer of its own.

Messages of a consumer that disconnects stay in flight until `on_timer`, at the start of the next turn: a disconnect has
no `now`, and a checkpoint between the two must contain them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final

from nsqtw.core.consumer import Consumer
from nsqtw.core.timers import Timer, TimerQueue

_VARIATION: Final = 0.2
_STEPS: Final = 32
"""Due times of messages that were delivered equally often and fail in one turn, less one."""
_MOST_DOUBLINGS: Final = 64


class RequeueDelay(Timer):
    """
    The delays of one channel: `first` seconds after the first delivery, at most `longest` before they are varied.
    `requeue_all` requeues what a consumer has in flight. `random` returns a number from 0 up to 1.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        timers: TimerQueue,
        requeue_all: Callable[[Consumer, float], None],
        random: Callable[[], float] = random,
    ) -> None:
        super().__init__()
        self._timers = timers
        self._requeue_all = requeue_all
        self._random = random
        self._left: list[Consumer] = []
        self.first = first
        self.longest = longest

    def due(self, attempts: int, now: float) -> float:
        """Return when a message that was delivered `attempts` times, 1 or more, is to be delivered again."""
        delay = min(self.longest, self.first * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS))
        return now + delay * (1 + _VARIATION * (2 * round(self._random() * _STEPS) / _STEPS - 1))

    def take(self, consumer: Consumer) -> None:
        """The consumer has left: requeue its messages in flight soon."""
        self._left.append(consumer)
        self._timers.schedule(0.0, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API: requeue the messages of the consumers that have left."""
        left, self._left = self._left, []
        for consumer in left:
            self._requeue_all(consumer, now)
        return None
