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
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtw import lean  # isort: split

from twisted.python.usage import Options as TwistdOptions
from twisted.python.usage import UsageError

from nsqtw import option_sources
from nsqtw.errors import FlagError, NsqtwError, OptionError
from nsqtw.option_sources import CommandLine, Resolved
from nsqtw.version import version_line

if TYPE_CHECKING:
    from twisted.application.service import IService

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


def makeService(config: Options) -> IService:
    """The service that twistd runs. Ends the process with one line when the config file is wrong."""
    from twisted.internet import reactor

    from nsqtw.process import cannot_start
    from nsqtw.twistd_service import TwistdService

    try:
        found = _resolve(config.line)
    except OptionError as mistake:
        raise SystemExit(cannot_start(mistake)) from mistake
    return TwistdService(found.options, reactor, found.warnings, config.parent)


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
        from nsqtw.net.log import one_line

        sys.stderr.write(f"{one_line(str(mistake))}\n{_usage('nsqd')}")
        return _WRONG_FLAG
    except NsqtwError as mistake:
        from nsqtw.process import cannot_start

        return cannot_start(mistake)
    with lean.without_tls(not (found.options.tls_cert or found.options.authorizer)):
        from nsqtw.process import serve
    return serve(found.options, found.warnings)


def _answer(line: CommandLine) -> str | None:
    """What is to be printed instead of starting a broker, if anything. OptionError, PluginError."""
    if line.version:
        return f"{version_line()}\n"
    if line.help_backend or line.help_protocol or line.help_auth:
        from nsqtw import plugins

        if line.help_auth:
            return plugins.help_auth()
        return plugins.help_backend() if line.help_backend else plugins.help_protocol()
    if line.print_config:
        from nsqtw.net.log import start_up_line
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
