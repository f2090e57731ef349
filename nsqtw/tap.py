"""
How a broker is started: the console script `nsqd`, and `twistd nsq`.

Both take the same words, nsqd's flags in Go's style, read by `nsqtw.option_sources`. The script logs to stderr in
nsqd's format and ends with nsqd's exit codes: 0 after a clean stop, 1 when it cannot start, 2 for a wrong flag.
Under twistd, twistd's own options decide about logging and daemons.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from twisted.python import usage

from nsqtw.errors import NsqtwError, OptionError
from nsqtw.option_sources import CommandLine, read_command_line, resolve
from nsqtw.option_sources import usage as usage_of
from nsqtw.options import check
from nsqtw.service import BrokerService, version_line

_CANNOT_START = 1
_WRONG_FLAG = 2
_PROGRAM = "nsqd"


class Options(usage.Options):
    """The words behind `twistd nsq`."""

    line: CommandLine

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read `options` as nsqd does; twistd prints a UsageError and ends."""
        try:
            self.line = read_command_line(sys.argv[1:] if options is None else options)
        except OptionError as mistake:
            raise usage.UsageError(str(mistake)) from mistake
        if (answer := _answer(self.line)) is not None:
            print(answer, end="")
            raise SystemExit(0)

    def __str__(self) -> str:
        return usage_of("twistd nsq")


def makeService(config: Options) -> BrokerService:
    """The service that twistd runs. What is wrong with it is said when it starts."""
    from twisted.internet import reactor

    try:
        options, warnings = resolve(config.line)
    except NsqtwError as mistake:
        raise SystemExit(_fatal(str(mistake))) from mistake
    return _TwistdService(options, reactor, warnings)


def main_nsqd() -> None:
    """The console script."""
    sys.exit(_run(sys.argv[1:]))


class _TwistdService(BrokerService):
    """Ends the process with one line, where twistd would print a traceback."""

    def startService(self) -> None:
        try:
            super().startService()
        except NsqtwError as mistake:
            self.log.critical("failed to instantiate nsqd - {mistake}", mistake=mistake)
            raise SystemExit(_CANNOT_START) from mistake
