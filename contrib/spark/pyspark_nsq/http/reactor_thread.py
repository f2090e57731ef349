"""Twisted's reactor in a thread of its own, started when the first write of a process needs it.

Spark's Python workers are forked from a daemon that never loads Twisted, so each has a reactor of its own,
and it lives on with the worker: connections are kept between tasks. A process forked while a reactor runs
is another matter. The child's copy says it is running, but its thread stayed behind in the parent, and
whatever is handed to it never happens. The process id noticed at the start tells the two apart.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, cast

from pyspark_nsq.errors import ForkedReactorError

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_START_SECONDS = 10
_lock = threading.Lock()
_started_in: int | None = None


def running_reactor() -> ReactorBase:
    """The process's reactor, running in a thread; started by the first call.

    May be called from any thread. Raises ForkedReactorError in a process that was forked from one whose
    reactor was started here.
    """
    global _started_in
    with _lock:
        if _started_in is None:
            _start()
            _started_in = os.getpid()
        elif _started_in != os.getpid():
            raise ForkedReactorError(
                f"process {os.getpid()} was forked from {_started_in}, where Twisted's reactor runs already; "
                "start worker processes afresh (spawn), or before the first write"
            )
    return _reactor()


def _reactor() -> ReactorBase:
    from twisted.internet import reactor

    return cast("ReactorBase", reactor)


def _start() -> None:
    reactor = _reactor()
    if reactor.running:
        return
    up = threading.Event()
    reactor.callWhenRunning(up.set)
    threading.Thread(
        target=reactor.run, kwargs={"installSignalHandlers": False}, name="pyspark-nsq-reactor", daemon=True
    ).start()
    if not up.wait(_START_SECONDS):
        raise RuntimeError(f"Twisted's reactor did not start within {_START_SECONDS} s")
