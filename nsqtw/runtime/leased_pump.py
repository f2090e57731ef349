"""The pump of a broker that may serve for a limited time: until the end of its lease."""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

from nsqtw.core.broker import Broker
from nsqtw.core.channel_base import ChannelBase
from nsqtw.runtime.pump import Pump, Writer
from nsqtw.runtime.reactor import Reactor


class LeasedPump(Pump):
    """
    Refuses publishes and delivers nothing from the end of the lease on. Each turn compares it with the time, so a
    process that was stopped for a while does not go on serving. What waits to be served meanwhile is kept.
    """

    def __init__(self, reactor: Reactor, broker: Broker, writer: Writer, now: Callable[[], float] = monotonic) -> None:
        super().__init__(reactor, broker, writer, now)
        self._lease_end = inf
        self._withheld: dict[ChannelBase, None] = {}

    def serve_until(self, end: float) -> None:
        """Serve until this time, and no longer."""
        self._lease_end = end
        self.wake()

    def _work(self, now: float) -> bool:
        is_over = now >= self._lease_end
        if is_over is not self._broker.is_suspended:
            self._broker.suspend(is_over)
            self._broker.to_serve.update(self._withheld)
            self._withheld.clear()
        return super()._work(now)

    def _serve(self, now: float) -> bool:
        if not self._broker.is_suspended:
            return super()._serve(now)
        self._withheld.update(self._broker.to_serve)
        self._broker.to_serve.clear()
        return False
