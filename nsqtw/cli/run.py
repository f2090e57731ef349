"""The reactor, for one coroutine: SIGINT and SIGTERM cancel it, and its result or error is that of `run`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.process import reapAllProcesses
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from nsqtw.printing import complain, complain_lines
from nsqtw.runtime.reactor import Reactor

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(main: Callable[[Reactor], Coroutine[Any, Any, T]], *, is_debug: bool = False) -> T:
    """
    Run `main(reactor)` to its end. KeyboardInterrupt after a signal, unless `main` handles the CancelledError of
    Twisted and returns. A second signal does not wait for it.
    """
    from twisted.internet import reactor as installed  # importing it makes it

    reactor = cast(Reactor, installed)
    globalLogBeginner.beginLoggingTo([_StderrObserver(is_debug)], redirectStandardIO=False)
    outcome: list[T] = []
    errors: list[BaseException] = []
    state = _State()

    def begin() -> None:
        state.running = Deferred.fromCoroutine(main(reactor))
        state.running.addCallbacks(outcome.append, lambda failure: errors.append(failure.value))
        state.running.addBoth(lambda _: reactor.stop())

    def interrupt() -> None:
        if state.is_interrupted:
            errors.append(KeyboardInterrupt())
            reactor.stop()
        state.is_interrupted = True
        if state.running is not None:
            state.running.cancel()

    before = {number: signal.getsignal(number) for number in (*_SIGNALS, signal.SIGCHLD)}
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: reactor.callFromThread(interrupt))
    # As Twisted does with handlers of its own: without it the end of a child process is not noticed.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: reactor.callFromThread(reapAllProcesses))
    reactor.callWhenRunning(begin)
    try:
        reactor.run(installSignalHandlers=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if outcome:
        return outcome[0]
    if state.is_interrupted and (not errors or isinstance(errors[0], CancelledError)):
        raise KeyboardInterrupt
    raise errors[0]


class _State:
    running: Deferred[Any] | None = None
    is_interrupted = False


@implementer(ILogObserver)
class _StderrObserver:
    """Writes the log of the client library to stderr: with --debug all of it, otherwise errors of the program."""

    def __init__(self, is_debug: bool) -> None:
        self._is_debug = is_debug

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if self._is_debug:
            level = event.get("log_level", LogLevel.info).name
            complain(f"{level}: {formatEvent(event)}")
            if failure is not None:
                complain_lines(failure.getTraceback())
        elif failure is not None:
            complain(f"nsqtw: {failure.getErrorMessage()} (--debug shows where)")
