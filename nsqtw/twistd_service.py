"""
A daemon in a process of twistd's: its log, and its end when it cannot start.

The log has NSQ's lines or JSON, where twistd's own options say (`--logfile`, `--nodaemon`). twistd takes the observer
it finds on the application, and otherwise makes one. The one it would have made knows the file and how it is rotated
(SIGUSR1), so that one is taken and only told how to format; twistd has no public door to it. `--logger` and `--syslog`
are other logs, with formats of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import FileLogObserver, ILogObserver
from twisted.scripts._twistd_unix import UnixAppLogger

from nsqtw.errors import NsqtwError, OptionError
from nsqtw.net.garbage import Garbage
from nsqtw.net.log import LogOptions, log_format
from nsqtw.process import MakeDaemon, cannot_start, reload_on_hang_up


class TwistdService(Service):
    """
    What `make` makes, for `program`. `given` are twistd's options, None when there is no twistd. Ends the process with
    one line when it cannot start, where twistd would print a traceback. A daemon leaves that to twistd, whose parent
    process waits to be told.
    """

    def __init__(
        self,
        make: MakeDaemon,
        options: LogOptions,
        reactor: Any,
        warnings: Iterable[str],
        given: Mapping[str, Any] | None,
        program: str,
    ) -> None:
        self._daemon = make(options, reactor, warnings)
        self._options = options
        self._reactor = reactor
        self._given = given
        self._program = program

    def setServiceParent(self, parent: Any) -> None:
        if self._given is not None:
            try:
                _use_format(parent, self._given, self._options)
            except OptionError as mistake:
                raise SystemExit(cannot_start(mistake, self._options, self._program)) from mistake
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        try:
            self._daemon.startService()
        except NsqtwError as mistake:
            if self._given is not None and not self._given.get("nodaemon", True):
                raise
            raise SystemExit(cannot_start(mistake, self._options, self._program)) from mistake
        super().startService()  # type: ignore[no-untyped-call]
        if self._given is not None:
            Garbage(self._reactor).start()
            reload_on_hang_up(self._reactor, self._daemon)

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        return self._daemon.stopService()


def _use_format(application: Any, given: Mapping[str, Any], options: LogOptions) -> None:
    if given.get("logger") or given.get("syslog"):
        if options.log_format != "text":
            raise OptionError(f"--log-format={options.log_format} is not for twistd's --logger and --syslog")
        return
    observer: FileLogObserver = UnixAppLogger(given)._getLogObserver()  # type: ignore[no-untyped-call]
    observer.formatEvent = log_format(options)
    application.setComponent(ILogObserver, observer)
