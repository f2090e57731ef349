"""
Signals of a daemon.

    SIGTERM           a clean stop, or a drain and then a clean stop, as the daemon decides; a second one stops at once
    SIGINT            a clean stop
    SIGHUP            files and options are read again
    SIGQUIT           the stacks of all threads on stderr and exit code 2, without a clean stop
    SIGUSR1, SIGUSR2  ignored

Signals during the stop change nothing. A handler only schedules a call of the reactor, because it can interrupt the
daemon anywhere.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Protocol

from nsqtw.runtime.reactor import Reactor, stop_once

CRASHED = 2


class Signalled(Protocol):
    """A daemon that signals are sent to."""

    def begin_drain(self) -> bool:
        """SIGTERM: begin a drain if the daemon does that, and return whether. It stops the reactor by itself then."""

    def reload(self) -> None:
        """SIGHUP: read again what may change. The log says what came of it."""


def listen_to_signals(reactor: Reactor, daemon: Signalled) -> None:
    """Install all signal handlers."""
    stop_on_sigterm(reactor, daemon)
    signal.signal(signal.SIGINT, lambda number, frame: reactor.callFromThread(stop_once, reactor))
    reload_on_sighup(reactor, daemon)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, lambda number, frame: os._exit(CRASHED))
    # Dumps at once, even while no Python code gets a turn, and then passes on to the handler above.
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)


def stop_on_sigterm(reactor: Reactor, daemon: Signalled) -> None:
    """On SIGTERM, have the daemon drain if it does that, and stop the reactor otherwise."""

    def end() -> None:
        if not daemon.begin_drain():
            stop_once(reactor)

    call: Callable[[], None] = end

    def terminate(number: int, frame: object) -> None:
        nonlocal call
        reactor.callFromThread(call)
        call = partial(stop_once, reactor)

    signal.signal(signal.SIGTERM, terminate)


def reload_on_sighup(reactor: Reactor, daemon: Signalled) -> None:
    """On SIGHUP, have the daemon read its files and options again."""
    signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(daemon.reload))
