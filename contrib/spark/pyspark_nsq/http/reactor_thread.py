"""Twisted's reactor in a thread of its own, started at its first use in a process.

Spark's Python workers are forked from a daemon that never loads Twisted, so each has a reactor of its own, which runs
as long as the worker: connections are kept between tasks. In a process that is forked while a reactor runs, the copy of
the reactor seems to run, but its thread is missing, and it executes nothing. The process id of the start detects this.

All threads of the reactor are daemons: a process ends without waiting for them. A reactor that has ended, because
other code in the process stopped it, cannot be started again; `wait_for` then ends the wait of a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark_nsq.errors import ForkedReactorError, ReactorStoppedError

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

T = TypeVar("T")

_START_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_lock = threading.Lock()
_started_in: int | None = None
_thread: threading.Thread | None = None
"""None also when the reactor was started by other code."""
_failure: BaseException | None = None


def running_reactor() -> ReactorBase:
    """Return the process's reactor, which runs in a thread. The first call starts it.

    May be called from any thread. Raises ForkedReactorError in a process that was forked from one whose
    reactor was started here, and ReactorStoppedError when it does not start or has ended.
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
        elif not _runs():
            raise _stopped()
    return _reactor()


def wait_for(arrived: Callable[[float], bool]) -> None:
    """Call `arrived`, which waits for so many seconds, until it returns true.

    For a thread that waits for work of the reactor. Raises ReactorStoppedError when the reactor ends before.
    """
    while not arrived(_LOOK_SECONDS):
        # The work that the reactor did just before its end has arrived.
        if not _runs() and not arrived(0):
            raise _stopped()


class Outcome(Future[T]):
    """A future of work in the reactor's thread. `result` raises ReactorStoppedError when the reactor ends before."""

    def result(self, timeout: float | None = None) -> T:
        if timeout is None:
            wait_for(lambda seconds: self in wait([self], seconds).done)
        return super().result(timeout)


def begin(work: Callable[[], Coroutine[Any, Any, T]]) -> Outcome[T]:
    """Run `work` in the reactor's thread, and return a future of its result. Raises as `running_reactor`."""
    outcome: Outcome[T] = Outcome()

    def start() -> None:
        from twisted.internet.defer import Deferred

        done = Deferred.fromCoroutine(work())
        done.addCallbacks(outcome.set_result, lambda failure: outcome.set_exception(failure.value))

    running_reactor().callFromThread(start)
    return outcome


def _runs() -> bool:
    return _reactor().running and (_thread is None or _thread.is_alive())


def _stopped() -> ReactorStoppedError:
    why = f": {_failure!r}" if _failure is not None else ", by other code in this process"
    return ReactorStoppedError(f"Twisted's reactor has stopped{why}; nothing can be sent from this process any more")


def _reactor() -> ReactorBase:
    from twisted.internet import reactor

    return cast("ReactorBase", reactor)


def _start() -> None:
    global _thread
    reactor = _reactor()
    if reactor.running:
        return
    up = threading.Event()
    reactor.callWhenRunning(up.set)
    _thread = threading.Thread(target=_run, args=(reactor,), name="pyspark-nsq-reactor", daemon=True)
    _thread.start()
    for _ in range(int(_START_SECONDS / _LOOK_SECONDS)):
        if up.wait(_LOOK_SECONDS):
            return
        if not _thread.is_alive():
            raise _stopped()
    raise ReactorStoppedError(f"Twisted's reactor did not start within {_START_SECONDS:.0f} s")


def _run(reactor: ReactorBase) -> None:
    global _failure
    try:
        reactor.run(installSignalHandlers=False)
    except BaseException as failure:
        _failure = failure


def _after_fork() -> None:
    """Replace the lock, which another thread of the parent may have held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
