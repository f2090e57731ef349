"""
How a broker is started: the console script `nsqd`, and `twistd nsq`.

Both take the same words, nsqd's flags in Go's style, and the same environment variables, read by
`nsqtw.option_sources`. The script logs to stderr in nsqd's format and ends with nsqd's exit codes: 0 after a clean
stop, 1 when it cannot start, 2 for a wrong flag. Under twistd, twistd's own options decide where the log goes, about
daemons and about signals.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.python.usage import Options as TwistdOptions
from twisted.python.usage import UsageError

from nsqtw import option_sources, plugins
from nsqtw.errors import FlagError, NsqtwError, OptionError
from nsqtw.net.log import one_line, start_up_line
from nsqtw.option_sources import CommandLine, Resolved
from nsqtw.options import Options as BrokerOptions
from nsqtw.process import cannot_start, serve
from nsqtw.service import BrokerService, version_line

_WRONG_FLAG = 2


class Options(TwistdOptions):
    """The words behind `twistd nsq`."""

    line: CommandLine

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read `options` as nsqd does. UsageError, which twistd prints."""
        try:
            self.line = option_sources.read_command_line(sys.argv[1:] if options is None else options)
            answer = _answer(self.line)
        except NsqtwError as mistake:
            raise UsageError(str(mistake)) from mistake
        if self.line.help:
            answer = str(self)
        if answer is not None:
            print(answer, end="")
            raise SystemExit(0)

    def __str__(self) -> str:
        return _usage("twistd nsq")


def makeService(config: Options) -> BrokerService:
    """The service that twistd runs. Ends the process with one line when the config file is wrong."""
    from twisted.internet import reactor

    try:
        found = _resolve(config.line)
    except OptionError as mistake:
        raise SystemExit(cannot_start(mistake)) from mistake
    return _TwistdService(found.options, reactor, found.warnings, config.parent)


class _TwistdService(BrokerService):
    """
    The broker in a process of twistd's, whose options are `given`; None when there is no twistd. It decides about the
    log, and ends the process with one line when it cannot start, where twistd would print a traceback. A daemon leaves
    that to twistd, whose parent process waits to be told.
    """

    def __init__(
        self, options: BrokerOptions, reactor: Any, warnings: list[str], given: Mapping[str, Any] | None
    ) -> None:
        super().__init__(options, reactor, warnings)
        self._given = given

    def setServiceParent(self, parent: Any) -> None:
        if self._given is not None:
            from nsqtw.twistd_log import use_format

            try:
                use_format(parent, self._given, self._options)
            except OptionError as mistake:
                raise SystemExit(cannot_start(mistake, self._options)) from mistake
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        try:
            super().startService()
        except NsqtwError as mistake:
            if self._given is not None and not self._given.get("nodaemon", True):
                raise
            raise SystemExit(cannot_start(mistake, self._options)) from mistake


def main_nsqd() -> None:
    """The console script `nsqd`."""
    # Until there is a broker that can stop, an interrupt ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_nsqd(sys.argv[1:]))


def run_nsqd(words: Sequence[str]) -> int:
    """Run a broker until it is told to stop. The exit code."""
    try:
        line = option_sources.read_command_line(words)
        if line.help:
            sys.stderr.write(_usage("nsqd"))
            return 0
        answer = _answer(line)
        if answer is not None:
            sys.stdout.write(answer)
            return 0
        found = _resolve(line)
    except FlagError as mistake:
        sys.stderr.write(f"{one_line(str(mistake))}\n{_usage('nsqd')}")
        return _WRONG_FLAG
    except NsqtwError as mistake:
        return cannot_start(mistake)
    return serve(found.options, found.warnings)


def _answer(line: CommandLine) -> str | None:
    """What is to be printed instead of starting a broker, if anything. OptionError, PluginError."""
    if line.version:
        return f"{version_line()}\n"
    if line.help_backend:
        return plugins.help_backend()
    if line.help_protocol:
        return plugins.help_protocol()
    if line.print_config:
        from nsqtw.option_file import config_text

        found = _resolve(line)
        for warning in found.warnings:
            sys.stderr.write(start_up_line("WARNING", warning, time.time()))
        return config_text(found.options, found.sources)
    return None


def _resolve(line: CommandLine) -> Resolved:
    return option_sources.resolve(line, os.environ)


def _usage(program: str) -> str:
    # A broker that starts has no use for the pages.
    from nsqtw.option_pages import usage

    return usage(program)
