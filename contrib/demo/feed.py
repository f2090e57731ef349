"""The feed of the Spark job: records in parts, so that the broker can be killed in between.

Each task lets its rows pass at a steady rate, and holds the last part back until the broker has been
killed: so the kill falls into the middle of the publishing on a slow machine as on a fast one.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Which part of the rows may pass before the kill. More than half, as the kill waits for half to be
#: delivered; the rest is room for what sits in buffers between Spark and the broker.
_BEFORE_KILL = 0.75
_POLL_SECONDS = 0.02
#: With so few records that buffers hold half of them the kill would wait for ever.
_LONGEST_HOLD_SECONDS = 10.0


@dataclass(frozen=True)
class Feed:
    """How to pace one task: its share of the rows, its time, and the file that says the broker was killed."""

    rows: int
    seconds: float
    killed: str

    def pacer(self, sleep: Callable[[float], None] = time.sleep) -> Callable[[str], str]:
        """A function that returns its argument when it is time to; a new one for each task."""
        # Only plain values go into the function: it is sent to Spark's workers.
        rate = self.rows / self.seconds
        killed = self.killed
        hold_at = int(self.rows * _BEFORE_KILL)
        passed = 0
        start = 0.0

        def pace(value: str) -> str:
            nonlocal passed, start
            if passed == 0:
                start = time.monotonic()
            if passed == hold_at:
                until = time.monotonic() + _LONGEST_HOLD_SECONDS
                while not os.path.exists(killed) and time.monotonic() < until:
                    sleep(_POLL_SECONDS)
            ahead = start + passed / rate - time.monotonic()
            if ahead > 0:
                sleep(ahead)
            passed += 1
            return value

        return pace
