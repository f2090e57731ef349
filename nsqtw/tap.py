"""
How a broker is started: the console script `nsqd`, and `twistd nsq`.

Both take the same words, nsqd's flags in Go's style, and the same environment variables, read by
`nsqtw.option_sources`. The script logs to stderr in nsqd's format and ends with nsqd's exit codes: 0 after a clean
stop, 1 when it cannot start, 2 for a wrong flag. Under twistd, twistd's own options decide about logs, daemons
and signals.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from twisted.python.usage import Options as TwistdOptions
from twisted.python.usage import UsageError

from nsqtw import option_sources, plugins
from nsqtw.errors import FlagError, NsqtwError, OptionError, UnfitValue
from nsqtw.net.log import START_UP_PREFIX, LineLog, log_line
from nsqtw.option_sources import CommandLine, Resolved
from nsqtw.service import BrokerService, version_line

_CANNOT_START = 1
_WRONG_FLAG = 2
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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
        raise SystemExit(_fatal(mistake)) from mistake
    if config.parent is None or config.parent["nodaemon"]:
        return _ForegroundService(found.options, reactor, found.warnings)
    return BrokerService(found.options, reactor, found.warnings)


class _ForegroundService(BrokerService):
    """
    Ends the process with one line when it cannot start, where twistd would print a traceback. A daemon leaves it to
    twistd, whose parent process waits to be told.
    """

    def startService(self) -> None:
        try:
            super().startService()
        except NsqtwError as mistake:
            raise SystemExit(_fatal(mistake)) from mistake


def main_nsqd() -> None:
    """The console script `nsqd`."""
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
        _serve(line)
    except FlagError as mistake:
        sys.stderr.write(f"{_one_line(str(mistake))}\n{_usage('nsqd')}")
        return _WRONG_FLAG
    except NsqtwError as mistake:
        return _fatal(mistake)
    return 0


def _serve(line: CommandLine) -> None:
    """Start a broker and return when it has stopped. NsqtwError when it cannot start."""
    from twisted.internet import reactor as installed
    from twisted.logger import globalLogBeginner

    reactor: Any = installed
    found = _resolve(line)
    globalLogBeginner.beginLoggingTo([LineLog(sys.stderr.write, found.options)], redirectStandardIO=False)
    service = BrokerService(found.options, reactor, found.warnings)

    def stop(number: int, frame: object) -> None:
        # Once is enough: what comes while the broker stops changes nothing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reactor.callFromThread(reactor.stop)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run(installSignalHandlers=False)


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
            _say("WARNING", warning)
        return config_text(found.options, found.sources)
    return None


def _resolve(line: CommandLine) -> Resolved:
    return option_sources.resolve(line, os.environ)


def _usage(program: str) -> str:
    # A broker that starts has no use for the pages.
    from nsqtw.option_pages import usage

    return usage(program)


def _fatal(mistake: NsqtwError) -> int:
    """Say why there is no broker. The exit code."""
    _say("" if isinstance(mistake, UnfitValue) else "FATAL", str(mistake))
    return _CANNOT_START


def _say(word: str, text: str) -> None:
    """A line on stderr from before there is a log; nsqd's lines without a level have less in front."""
    # twistd turns sys.stderr into its log.
    stderr = sys.__stderr__ or sys.stderr
    now = time.time()
    if word:
        stderr.write(log_line(START_UP_PREFIX, now, word, _one_line(text)))
    else:
        stderr.write(f"{datetime.fromtimestamp(now):%Y/%m/%d %H:%M:%S} {_one_line(text)}\n")


def _one_line(text: str) -> str:
    """`text` where something in it, written by a user, may have line ends or move the cursor."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
