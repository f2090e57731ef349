"""
A reactor whose timers do not follow the wall clock.

Twisted measures delays with `time.time`: when the clock is set back by an hour, every timer is an hour late, and when
it is set forward all of them run at once.
"""

from __future__ import annotations

import time

from twisted.internet.base import ReactorBase
from twisted.python import runtime

from nsqtw.runtime.reactor import Reactor


def use_monotonic_clock(reactor: Reactor) -> None:
    """
    Let `reactor` measure with the monotonic clock. Calls that are scheduled already keep their time. A test's reactor,
    with a clock of its own, is not changed.
    """
    if isinstance(reactor, ReactorBase) and reactor.seconds is runtime.seconds:
        base = time.time() - time.monotonic()
        reactor.seconds = lambda: base + time.monotonic()
