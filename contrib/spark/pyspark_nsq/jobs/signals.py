"""SIGINT and SIGTERM for a job that finishes its current step before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM. The second one raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True
        stop()

    # Spark installs its own handler of SIGINT at the start of the session.
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
