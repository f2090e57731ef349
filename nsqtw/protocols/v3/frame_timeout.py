"""
Time limit of a frame that has come in part: `body_timeout`, after which it must go on coming at `min_body_rate`.

A timer runs only while there is such a frame. A heartbeat does not help: what a client has sent of a frame is kept for
it.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.interfaces import IBroker
from nsqtw.protocols.body_rate import BodyRate


class FrameTimeout:
    """
    The frame that a connection is in the middle of. `unfinished_bytes` returns how many bytes of it there are,
    `expired` is called when too few have come: it returns whether the connection ends for that.
    """

    def __init__(self, broker: IBroker, unfinished_bytes: Callable[[], int], expired: Callable[[], bool]) -> None:
        self._broker = broker
        self._rate = BodyRate(self._broker.min_body_rate)
        self._unfinished_bytes = unfinished_bytes
        self._expired = expired
        self._begun = 0.0
        self._is_running = False

    def begin(self, now: float) -> None:
        """Another frame has come in part."""
        self._begun = now
        timeout = self._broker.body_timeout
        if timeout and not self._is_running:
            self._is_running = True
            self._broker.schedule(now + timeout, self._on_time)

    def _on_time(self, now: float) -> None:
        self._is_running = False
        received, timeout = self._unfinished_bytes(), self._broker.body_timeout
        if not received or not timeout:
            return
        due = self._begun + timeout
        if due <= now and not self._rate.goes_on(self._begun, received, now, timeout):
            if self._expired():
                return
            self._begun, due = now, now + timeout
        self._is_running = True
        self._broker.schedule(max(due, self._rate.until), self._on_time)
