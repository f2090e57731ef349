"""
A reactor whose timers do not follow the wall clock.

Twisted measures delays with `time.time`: when somebody sets the clock back by an hour, everything that waits waits an
hour longer, and when he sets it forward all of it comes at once.
"""

from __future__ import annotations

import time

from twisted.internet.base import ReactorBase
from twisted.python import runtime

from nsqtw.runtime.reactor import Reactor


def use_monotonic_clock(reactor: Reactor) -> None:
    """
    From now on `reactor` measures with the monotonic clock. What it has been asked for already keeps its time. A
    reactor of a test, with a clock of its own, is left alone.
    """
    if isinstance(reactor, ReactorBase) and reactor.seconds is runtime.seconds:
        base = time.time() - time.monotonic()
        reactor.seconds = lambda: base + time.monotonic()
