"""
How far a run is: what was sent, acknowledged and received, and whether more may be sent.
"""

import time

from .plan import Plan


class Traffic:
    """
    Shared by all connections of a load process; ``start`` begins the measured time.
    """

    def __init__(self, plan: Plan) -> None:
        publishing = plan.publishing
        self._limit = publishing.limit if publishing else 0.0
        self._seconds = publishing.seconds if publishing else 0.0
        self._rate = publishing.rate if publishing else 0.0
        self._backlog = plan.backlog or float("inf")
        self.is_held_back = bool(publishing and publishing.rate < float("inf")) or bool(plan.backlog)
        """
        Whether there is anything but the end that may keep a payload from being sent.
        """
        self._prefilled = plan.prefilled
        self._start = self._deadline = 0.0
        self.sent = 0
        self.acknowledged = 0
        self.received = {one.channel: 0 for one in plan.consuming}

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.acknowledged} acknowledged, {self.received} received "
            f"where {self.expected} should be"
        )

    def start(self) -> None:
        self._start = time.perf_counter()
        self._deadline = self._start + self._seconds

    def take(self, messages: int) -> bool:
        """
        Whether that many messages may be sent now; if so they count as sent.
        """
        now = time.perf_counter()
        if self.sent >= self._limit or now >= self._deadline or (self.is_held_back and self._waits(now)):
            return False
        self.sent += messages
        return True

    def _waits(self, now: float) -> bool:
        waiting = self.sent - min(self.received.values(), default=self.sent)
        return waiting > self._backlog or self.sent >= self._rate * (now - self._start)

    @property
    def closed(self) -> bool:
        """
        Nothing more will be sent.
        """
        return self.sent >= self._limit or time.perf_counter() >= self._deadline

    @property
    def expected(self) -> int:
        """
        What each channel must have delivered once the traffic is closed.
        """
        return self._prefilled + self.sent

    @property
    def progress(self) -> int:
        """
        A number that grows with every message acknowledged or received.
        """
        return self.acknowledged + sum(self.received.values())

    @property
    def finished(self) -> bool:
        """
        All that was sent is acknowledged and received; more than expected counts as finished, too.
        """
        return (
            self.acknowledged == self.sent
            and min(self.received.values(), default=self.expected) >= self.expected
            and self.closed
        )
