"""
Drain of a running broker: from the first refused publish to the stop of the process.

    begin ─▶ publishes are refused, the nsqlookupds are left ─▶ deliver ─▶ all delivered, or the deadline ─▶ stop

The broker works as always meanwhile, but for publishes: consumers connect, finish and requeue, checkpoints are saved. A
broker that is killed during a drain has lost nothing that it acknowledged. What counts as delivered is said in
`core.drain`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import attrs
from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.drain import Unfinished, is_drained, unfinished
from nsqtw.runtime.pump import Pump

CHECK_SECONDS = 0.25
"""The time between two looks at what is left."""
REPORT_SECONDS = 10.0
"""The time between two lines in the log."""
REASON = "the broker drains: publish to another nsqd"

_log = Logger()


class Drain:
    """
    The drain of one broker.

    `leave` is called when it begins, and is to have no nsqlookupd send new clients; `stop`, once, when it has ended.
    """

    def __init__(
        self,
        broker: Broker,
        pump: Pump,
        leave: Callable[[], None] = lambda: None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._pump = pump
        self._leave = leave
        self._stop = stop
        self._timer: Any = None
        self._began_at: float | None = None
        self._deadline = inf
        self._next_report = 0.0
        self._has_ended = False

    @property
    def has_begun(self) -> bool:
        """Whether publishes are refused."""
        return self._began_at is not None

    @property
    def reason(self) -> str:
        """Return why no new client should come; empty without a drain."""
        return REASON if self.has_begun else ""

    @property
    def seconds_left(self) -> float:
        """The time until the deadline; infinity without one."""
        return max(0.0, self._deadline - self._pump.now())

    def begin(self, timeout: float) -> None:
        """
        Refuse publishes and deliver what there is, for at most `timeout` seconds; 0 for any time. During a drain it
        sets another deadline, from now on.
        """
        now = self._pump.now()
        self._deadline = now + timeout if timeout else inf
        limit = f"at most {timeout:g} s" if timeout else "without a deadline"
        if self._has_ended:
            return
        if self.has_begun:
            _log.info("NSQ: draining, from now on {limit}", limit=limit)
            return
        self._began_at = now
        self._broker.begin_drain()
        _log.info("NSQ: draining, {limit}: publishes are refused, {left}", limit=limit, left=str(self.left()))
        self._next_report = now + REPORT_SECONDS
        self._leave()
        self._timer = self._pump.reactor.callLater(CHECK_SECONDS, self._look)

    def cancel(self) -> None:
        """The process stops: look no more."""
        self._has_ended = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def left(self) -> Unfinished:
        """Return what is unfinished now."""
        return unfinished(self._broker.topics.values(), self._deadline, self._pump.now())

    def state(self) -> dict[str, Any]:
        """Return the JSON document of /v2/drain. Times are seconds; `seconds_left` is null without a deadline."""
        left = attrs.asdict(self.left())
        state: dict[str, Any] = {"draining": self.has_begun, **left}
        if self._began_at is not None:
            state["seconds"] = round(self._pump.now() - self._began_at, 3)
            state["seconds_left"] = None if self._deadline == inf else round(self.seconds_left, 3)
        return state

    def _look(self) -> None:
        now = self._pump.now()
        try:
            is_over = now >= self._deadline
            if is_over or self._is_empty(now):
                self._end(is_over)
                return
            if now >= self._next_report:
                self._next_report = now + REPORT_SECONDS
                _log.info("NSQ: draining, {left}", left=str(self.left()))
        except Exception:
            _log.failure("a look at what a drain has left failed")
        self._timer = self._pump.reactor.callLater(CHECK_SECONDS, self._look)

    def _is_empty(self, now: float) -> bool:
        """Return whether there is nothing to wait for, publishes that were taken before included."""
        return not self._broker.has_uncommitted and is_drained(self._broker.topics.values(), self._deadline, now)

    def _end(self, is_over: bool) -> None:
        self._has_ended = True
        left = self.left()
        stays = f"; messages that cannot be delivered now, and stay: {left.staying}" if left.staying else ""
        if is_over and not left.is_drained:
            _log.warn("NSQ: the drain's time is over, {left} stay in the data path{stays}", left=str(left), stays=stays)
        else:
            _log.info("NSQ: drained{stays}", stays=stays)
        self._stop()
