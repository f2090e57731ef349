"""
Backoff of a consumer: after a failure all connections get no messages for a time, then one message as a test.

    level 0    normal
    level L    failures raise it, successes lower it; every signal but the last success pauses for `duration(L)`

Signals during a pause are ignored: they belong to messages that were in flight before it.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from nsqtw.client.options import FULL_JITTER, ClientOptions


class Signal(Enum):
    """The outcome of a message."""

    SUCCESS = "success"
    FAILURE = "failure"
    CONTINUE = "continue"
    """A requeue without backoff."""


class Step(Enum):
    """What the consumer has to do after a signal."""

    NOTHING = "nothing"
    PAUSE = "pause"
    RESUME = "resume"


class Backoff:
    """The level, and the length of the current pause."""

    def __init__(self, options: ClientOptions, random: Random) -> None:
        self._options = options
        self._random = random
        self.level = 0
        self.is_paused = False
        """Whether the pause after a signal lasts."""
        self.pause = 0.0
        """Seconds of the current or last pause."""

    @property
    def is_on(self) -> bool:
        return self.level > 0

    def on_signal(self, signal: Signal) -> Step:
        """Record the outcome of a message."""
        if self.is_paused or not self._options.max_backoff_duration:
            return Step.NOTHING
        before = self.level
        if signal is Signal.FAILURE:
            if self.duration(self.level + 1) <= self._options.max_backoff_duration:
                self.level += 1
        elif signal is Signal.SUCCESS and self.level:
            self.level -= 1
        if not self.level:
            return Step.RESUME if before else Step.NOTHING
        self.is_paused = True
        self.pause = min(self.duration(self.level), self._options.max_backoff_duration)
        return Step.PAUSE

    def end_pause(self) -> None:
        """The pause is over: the next signals count."""
        self.is_paused = False

    def duration(self, level: int) -> float:
        """Return the seconds of a pause at `level`."""
        seconds: float = self._options.backoff_multiplier * 2.0**level
        return self._random.uniform(0, seconds) if self._options.backoff_strategy == FULL_JITTER else seconds
