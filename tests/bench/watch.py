"""
A broker's memory and disk while a plan is carried out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from .load import LoadProcess
from .plan import Plan, Tally
from .server import Broker

_SAMPLE_SECONDS = 1.0
MB = 1e6


@dataclass(frozen=True)
class Sample:
    """
    ``resident`` and ``disk`` are bytes; ``seconds`` counts from the first sample of its watch.
    """

    seconds: float
    resident: int
    disk: int

    def __str__(self) -> str:
        return f"{self.seconds:6.0f} s  resident {self.resident / MB:8.1f} MB  disk {self.disk / MB:8.1f} MB"


class Watch:
    """
    Collects samples of one broker and shows one of them every ``show_seconds``.
    """

    def __init__(self, broker: Broker, show_seconds: float, show: Callable[[str], None]) -> None:
        self._broker = broker
        self._show_seconds = show_seconds
        self._show = show
        self._start = time.monotonic()
        self._next_shown = 0.0
        self.samples: list[Sample] = []

    def sample(self, remark: str = "") -> Sample:
        """
        Take a sample now. It is shown if it has a remark or if it is time to show one.
        """
        seconds = time.monotonic() - self._start
        taken = Sample(seconds, self._broker.resident_bytes()[0], self._broker.disk_bytes())
        self.samples.append(taken)
        if remark or seconds >= self._next_shown:
            self._show(f"{taken}  {remark}".rstrip())
            self._next_shown = seconds + self._show_seconds
        return taken

    def carry_out(self, plan: Plan) -> Tally:
        """
        Carry out ``plan`` in a process of its own, with a sample every second.

        Raises `BenchError` as `LoadProcess.result` does.
        """
        load = LoadProcess(plan)
        try:
            while not load.wait(_SAMPLE_SECONDS):
                self.sample()
            return load.result()
        finally:
            load.kill()

    @property
    def most_resident(self) -> int:
        """
        The kernel's own high-water mark of resident memory, so no peak between samples is missed.
        """
        return self._broker.resident_bytes()[1]

    @property
    def most_disk(self) -> int:
        """
        The most disk seen in a sample.
        """
        return max(one.disk for one in self.samples)
