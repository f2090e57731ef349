"""
Delay of failed messages: none is delivered again before its delay has passed since its REQ, nor after a restart.

The delay begins after the REQ was sent, and the message is read after it was delivered: a slow machine makes the time
between the two longer only.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.policies.notes import Requeued, Saved
from tests.crash.policies.row import Row

_FIRST_MS, _LONGEST_MS = 600, 1100
_SHORTEST_SHARE = 0.8
"""Delays are varied by a fifth."""


class Delay(Row):
    """Half of the messages are requeued without a delay."""

    name = "delayed"
    channel_policy = {"requeue_delay": f"{_FIRST_MS}ms", "max_requeue_delay": f"{_LONGEST_MS}ms"}
    requeues = 0.5

    def broken(self) -> Iterator[str]:
        saved = {event.life: number for number, event in self.notes.all(Saved)}
        delivered = self.notes.delivered
        for number, requeued in self.notes.all(Requeued):
            due = requeued.when.at + _shortest_seconds(requeued.attempts)
            for later, event in delivered[requeued.channel][requeued.body]:
                is_same_life = event.life == requeued.life and event.attempts > requeued.attempts
                # A due time outlives the process as one of the wall clock.
                is_kept = event.life > requeued.life and number < saved.get(requeued.life, -1)
                is_moved = event.when.ahead != requeued.when.ahead
                if later < number or requeued.body in self.notes.excused:
                    continue
                if (is_same_life or (is_kept and not is_moved)) and event.when.at < due - SLACK_SECONDS:
                    early = due - event.when.at
                    yield f"delay: {shown(event.body)} came {early:.3f} s too early, in life {event.life}"


def _shortest_seconds(attempts: int) -> float:
    """Of the delay after so many deliveries."""
    return _SHORTEST_SHARE * min(_LONGEST_MS, _FIRST_MS * 2 ** (attempts - 1)) / 1000
