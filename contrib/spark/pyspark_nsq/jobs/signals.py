"""SIGINT and SIGTERM for a job that finishes its current step before it ends, and while Spark starts."""

from __future__ import annotations

import os
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

    with _handled_by(handle):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the end of the block: a Spark that starts cannot be stopped, and is left.

    The second one ends the process, and with it Spark.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)

    with _handled_by(handle):
        yield
    for number in received:
        signal.raise_signal(number)


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
