"""
How a broker is started: the console script `nsqd`, and `twistd nsq`.

Both take the same words, nsqd's flags in Go's style, read by `nsqtw.option_sources`. The script logs to stderr
in nsqd's format and ends with nsqd's exit codes: 0 after a clean stop, 1 when it cannot start, 2 for a wrong
flag. Under twistd, twistd's own options decide where the log goes, about daemons and about signals.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtw import lean  # isort: split

from twisted.python.usage import Options as TwistdOptions
from twisted.python.usage import UsageError

from nsqtw import option_sources
from nsqtw.errors import NsqtwError, OptionError
from nsqtw.option_sources import CommandLine
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
        return option_sources.usage("twistd nsq")


def makeService(config: Options) -> IService:
    """The service that twistd runs. Ends the process with one line when the config file is wrong."""
    from twisted.internet import reactor

    from nsqtw.process import cannot_start
    from nsqtw.twistd_service import TwistdService

    try:
        options, warnings = option_sources.resolve(config.line)
    except OptionError as mistake:
        raise SystemExit(cannot_start(mistake)) from mistake
    return TwistdService(options, reactor, warnings, config.parent)


def main_nsqd() -> None:
    """The console script `nsqd`."""
    # Until there is a broker that can stop, an interrupt ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_nsqd(sys.argv[1:]))


def run_nsqd(words: Sequence[str]) -> int:
    """Run a broker until it is told to stop. The exit code."""
    try:
        line = option_sources.read_command_line(words)
    except OptionError as mistake:
        sys.stderr.write(f"{mistake}\n{option_sources.usage('nsqd')}")
        return _WRONG_FLAG
    if line.help:
        sys.stderr.write(option_sources.usage("nsqd"))
        return 0
    try:
        answer = _answer(line)
        if answer is not None:
            sys.stdout.write(answer)
            return 0
        options, warnings = option_sources.resolve(line)
    except NsqtwError as mistake:
        from nsqtw.process import cannot_start

        return cannot_start(mistake)
    with lean.without_tls(not options.tls_cert):
        from nsqtw.process import serve
    return serve(options, warnings)


def _answer(line: CommandLine) -> str | None:
    """What is to be printed instead of starting a broker, if anything. PluginError."""
    if line.version:
        return f"{version_line()}\n"
    if line.help_backend or line.help_protocol:
        from nsqtw import plugins

        return plugins.help_backend() if line.help_backend else plugins.help_protocol()
    return None
