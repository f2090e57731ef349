"""
A daemon in a process of twistd: its log, and its end when it cannot start.

The log has NSQ's lines or JSON and goes where twistd's own options say (`--logfile`, `--nodaemon`). twistd takes the
observer that it finds on the application, and otherwise makes one, which knows the file and its rotation (SIGUSR1). So
that observer is made here and only told how to format (ADR 0019). `--logger` and `--syslog` are other logs, with
formats of their own.

A daemon that cannot start has no terminal any more. twistd's first process has it, waits for the outcome at the end of
a pipe, and would print the first hundred bytes of it as a bytes literal. It is changed to print the whole line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import FileLogObserver, ILogObserver, Logger
from twisted.scripts._twistd_unix import UnixApplicationRunner, UnixAppLogger

from nsqtw.daemon.logs import LogOptions, log_format
from nsqtw.daemon.process import CANNOT_START, MakeDaemon, SupervisedDaemon, cannot_start, why_not
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.daemon.signals import reload_on_sighup, stop_on_sigterm
from nsqtw.daemon.systemd import Supervision
from nsqtw.errors import NsqtwError, OptionError
from nsqtw.printing import complain, complain_lines
from nsqtw.runtime.memory import Garbage
from nsqtw.runtime.reactor import Reactor

_WHOLE = b"= "
"""The line of a daemon that cannot start begins with it in the pipe; twistd itself writes `0`, or `1 ` and an error."""
_MAX_BYTES = 4096
"""The size of one write to the pipe."""

_log = Logger()


O = TypeVar("O", bound=LogOptions)  # noqa: E741


class TwistdService(Service):
    """
    The service that `make` makes, for `program`.

    `config_values` are twistd's options, None without twistd. A failed start ends the process with one line, where
    twistd would print a traceback; a background process also logs it. `config` is what is read again on SIGHUP.
    """

    def __init__(
        self,
        make: MakeDaemon[O],
        options: O,
        reactor: Reactor,
        warnings: Iterable[str],
        config_values: Mapping[str, Any] | None,
        program: str,
        config: RunningConfig,
    ) -> None:
        self._daemon = make(options, reactor, warnings, config)
        self._options = options
        self._reactor = reactor
        self._given = config_values
        self._program = program
        self._supervision = Supervision(reactor, self._daemon.status, lambda: self._daemon.is_draining)
        if self._is_daemon:
            _show_failures_whole()

    @property
    def _is_daemon(self) -> bool:
        """Whether twistd puts the process into the background before the start."""
        return self._given is not None and not (self._given.get("nodaemon", True) or self._given.get("debug"))

    def setServiceParent(self, parent: Any) -> None:
        if self._given is not None:
            try:
                _use_format(parent, self._given, self._options)
            except OptionError as error:
                raise SystemExit(cannot_start(error, self._options, self._program)) from error
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        try:
            with self._supervision.starting():
                self._daemon.startService()
        except NsqtwError as error:
            if self._is_daemon:
                self._fail(error)
            raise SystemExit(cannot_start(error, self._options, self._program)) from error
        super().startService()  # type: ignore[no-untyped-call]
        if self._given is not None:
            Garbage(self._reactor).start()
            signalled = SupervisedDaemon(self._daemon, self._supervision)
            reload_on_sighup(self._reactor, signalled)
            # When it runs, the reactor has installed a handler of its own.
            self._reactor.callWhenRunning(stop_on_sigterm, self._reactor, signalled)
        self._reactor.callWhenRunning(self._supervision.ready)

    def _fail(self, error: NsqtwError) -> NoReturn:
        """End a daemon that cannot start: its log and the terminal it was started from have the line."""
        assert self._given is not None
        _log.critical("{error}", error=str(error))
        pipe, pidfile = self._given.get("statusPipe"), self._given.get("pidfile")
        if pidfile:  # first: what waits at the pipe may start the next daemon
            with suppress(OSError):
                os.unlink(pidfile)
        if pipe is not None:
            line = why_not(error, self._options, self._program)
            os.write(pipe, _WHOLE + line.encode("utf-8", "backslashreplace")[: _MAX_BYTES - len(_WHOLE)])
            os.close(pipe)
        # Of any other exception twistd would write a traceback to the log.
        raise SystemExit(CANNOT_START) from error

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        self._supervision.stopping()
        return self._daemon.stopService().addBoth(self._stopped)

    def _stopped(self, outcome: Any) -> Any:
        self._supervision.close()
        return outcome


def _show_failures_whole() -> None:
    """Have twistd's first process print the line of a daemon that cannot start as it is."""
    UnixApplicationRunner._waitForStart = _wait_for_start  # type: ignore[method-assign, assignment]


def _wait_for_start(runner: UnixApplicationRunner, pipe: int) -> int:
    """Replaces twistd's method, which reads a hundred bytes and shows them as Python does. Returns the exit code."""
    # Reading up to the end would block: twistd leaves the other end of the pipe open in this process, too.
    output = os.read(pipe, _MAX_BYTES)
    if output == b"0":
        return 0
    if output.startswith(_WHOLE):
        complain_lines(output.removeprefix(_WHOLE).decode("utf-8", "replace"))
    else:
        complain(f"the daemon ended before it served: {output[2:].decode('utf-8', 'replace')} (see its log)")
    return CANNOT_START


def _use_format(application: Any, config_values: Mapping[str, Any], options: LogOptions) -> None:
    if config_values.get("logger") or config_values.get("syslog"):
        if options.log_format != "text":
            raise OptionError(f"--log-format={options.log_format} is not for twistd's --logger and --syslog")
        return
    observer: FileLogObserver = UnixAppLogger(config_values)._getLogObserver()  # type: ignore[no-untyped-call]
    observer.formatEvent = log_format(options)
    application.setComponent(ILogObserver, observer)
