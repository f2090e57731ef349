"""
The process of a daemon, `nsqd` or another: its log, its signals (`daemon.signals`), its exit codes.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import FileLogObserver, Logger, globalLogBeginner

from nsqtw.daemon.logs import LogOptions, log_format, start_up_failure, start_up_line
from nsqtw.daemon.reload import Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.daemon.signals import CRASHED, Signalled, listen_to_signals
from nsqtw.daemon.systemd import Supervision
from nsqtw.errors import NsqtwError, UnfitValue
from nsqtw.printing import complain_lines
from nsqtw.runtime.memory import Garbage
from nsqtw.runtime.reactor import Reactor

STOPPED = 0
CANNOT_START = 1

_log = Logger()


class Daemon(Signalled, Protocol):
    """A daemon that can be started and stopped."""

    def startService(self) -> None:
        """NsqtwError, with the line for the user, when it cannot start."""

    def stopService(self) -> Deferred[None]: ...

    exit_code: int
    """The exit code after an orderly stop."""

    @property
    def is_draining(self) -> bool:
        """Whether it ends when it has delivered what it has."""

    def status(self) -> str:
        """Return a line for the service manager, while it serves."""


class DaemonService(Service):
    """A daemon as a Twisted service, without a drain. A subclass has startService and `_stop`."""

    reloading: Reload
    """The reload, on SIGHUP and over HTTP."""
    exit_code = STOPPED
    """Daemon API"""

    def stopService(self) -> Deferred[None]:
        """Fires when everything is stored and closed."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    def begin_drain(self) -> bool:
        """Signalled API. A daemon that has nothing to deliver does not drain."""
        return False

    @property
    def is_draining(self) -> bool:
        return False

    def reload(self) -> None:
        """Read again what may change while the daemon runs. The log says what came of it."""
        self.reloading.on_sighup()

    async def _stop(self) -> None:
        """Store and close everything."""
        raise NotImplementedError


O = TypeVar("O", bound=LogOptions)  # noqa: E741
O_contra = TypeVar("O_contra", bound=LogOptions, contravariant=True)


class MakeDaemon(Protocol[O_contra]):
    """Makes what is run: a class of services."""

    def __call__(
        self, options: O_contra, reactor: Reactor, warnings: Iterable[str], config: RunningConfig, /
    ) -> Daemon: ...


def serve(
    make: MakeDaemon[O],
    reactor: Reactor,
    options: O,
    warnings: Iterable[str],
    program: str,
    config: RunningConfig,
) -> int:
    """
    Run what `make` makes until it is told to stop; `config` is what it reads again on SIGHUP. The exit code; what is
    wrong is said on stderr.
    """
    # The format escapes what a peer has sent.
    observer = FileLogObserver(sys.stderr, log_format(options))  # noqa: TID251
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    service = make(options, reactor, warnings, config)
    supervision = Supervision(reactor, service.status, lambda: service.is_draining)
    listen_to_signals(reactor, SupervisedDaemon(service, supervision))
    codes = [STOPPED]

    async def stop() -> None:
        supervision.stopping()
        try:
            await service.stopService()
        except Exception:
            _log.failure("NSQ: the stop failed")
            codes.append(CRASHED)
        supervision.close()

    try:
        with supervision.starting():
            service.startService()
    except NsqtwError as error:
        return cannot_start(error, options, program)
    except Exception:
        _log.failure("NSQ: the start failed")
        return CRASHED
    Garbage(reactor).start()
    reactor.callWhenRunning(supervision.ready)
    reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(stop()))
    reactor.run(installSignalHandlers=False)
    return codes[-1] or service.exit_code


class SupervisedDaemon:
    """A daemon that gets signals, and whose service manager hears of what it does then."""

    def __init__(self, daemon: Daemon, supervision: Supervision) -> None:
        self._daemon = daemon
        self._supervision = supervision

    def begin_drain(self) -> bool:
        """Signalled API"""
        has_begun = self._daemon.begin_drain()
        if has_begun:
            self._supervision.draining()
        return has_begun

    def reload(self) -> None:
        """Signalled API"""
        with self._supervision.reloading():
            self._daemon.reload()


def daemon_reactor() -> Any:
    """The reactor of this process: the one it has (`twistd --reactor`), else ours; without epoll Twisted's choice."""
    if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
        from nsqtw.runtime.epoll import install

        install()
    from twisted.internet import reactor

    return reactor


def cannot_start(error: NsqtwError, options: LogOptions | None = None, program: str = "nsqd") -> int:
    """Say on stderr why `program` does not run; `options` once they are known. The exit code."""
    complain_lines(why_not(error, options, program))
    return CANNOT_START


def why_not(error: NsqtwError, options: LogOptions | None = None, program: str = "nsqd") -> str:
    """The line that says why `program` does not run; `options` once they are known."""
    if isinstance(error, UnfitValue):
        return start_up_line("", str(error), time.time())
    return start_up_failure(str(error), time.time(), options, program)
