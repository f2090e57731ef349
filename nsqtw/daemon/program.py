"""
Start of a daemon: its console script, and `twistd` with its name.

Both take the same words, NSQ's flags in Go's style, and the same environment variables, read by
`nsqtw.options.command_line`. The script logs to stderr in NSQ's format and ends with NSQ's exit codes: 0 after a clean
stop, 1 when it cannot start, 2 for a wrong flag. Under twistd, twistd's own options decide where the log goes, about
daemons and about signals.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from nsqtw.daemon import lazy_imports  # isort: split

import attrs
from twisted.python.usage import Options as TwistdOptions

from nsqtw.errors import FlagError, NsqtwError, OptionError
from nsqtw.options.command_line import CommandLine, OptionReader, Resolved
from nsqtw.printing import complain, complain_lines, discard_stdout, write_lines
from nsqtw.version import version_line

if TYPE_CHECKING:
    from twisted.application.service import IService

    from nsqtw.daemon.logs import LogOptions
    from nsqtw.daemon.process import MakeDaemon
    from nsqtw.daemon.running_config import RunningConfig

_WRONG_FLAG = 2

O = TypeVar("O", bound="LogOptions")  # noqa: E741
L = TypeVar("L", bound=CommandLine)


def _print(text: str) -> None:
    """Write an answer to stdout. Its reader may be gone (`nsqd --version | true`). CommandError."""
    try:
        write_lines(text)
    except BrokenPipeError:
        discard_stdout()


def _nothing_more(line: object) -> str | None:
    return None


@attrs.frozen
class Program(Generic[O, L]):
    """
    The start of a daemon.

    `load` imports the class of its service, when it is certain that one is going to run, and `needs_tls` tells from the
    options whether it needs OpenSSL from the start. `answer` is the output of the program's own flags that replace a
    start, None for none. `twistd_name` is the subcommand of twistd.
    """

    reader: OptionReader[O, L]
    twistd_name: str
    load: Callable[[], MakeDaemon[O]]
    needs_tls: Callable[[O], object]
    answer: Callable[[L], str | None] = _nothing_more

    @property
    def name(self) -> str:
        return self.reader.table.program

    def main(self) -> None:
        """Run as the console script."""
        # Until there is a daemon that can stop, an interrupt ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(self.run(sys.argv[1:]))

    def run(self, words: Sequence[str]) -> int:
        """Run a daemon until it is told to stop. The exit code."""
        try:
            line = self.read(words)
            if line.help:
                complain_lines(self.usage(self.name))
                return 0
            answer = self.answered(line)
            if answer is not None:
                _print(answer)
                return 0
            resolved = self.resolve(line)
        except FlagError as error:
            return self.wrong_flag(error, self.name)
        except NsqtwError as error:
            from nsqtw.daemon.process import cannot_start

            return cannot_start(error, program=self.name)
        with self.importing_lazily(resolved.options):
            from nsqtw.daemon.process import daemon_reactor, serve

            reactor, make = daemon_reactor(), self.load()
        return serve(make, reactor, resolved.options, resolved.warnings, self.name, self.config(line, resolved))

    def read(self, words: Sequence[str]) -> L:
        """A command line. FlagError, UnfitValue."""
        return self.reader.read_command_line(words, os.environ)

    def wrong_flag(self, error: FlagError, program: str) -> int:
        """Say on stderr why the command line of `program` cannot be used. The exit code."""
        complain(str(error))
        complain(f"{program} --help lists every flag")
        return _WRONG_FLAG

    def answered(self, line: L) -> str | None:
        """Return the text to print instead of starting; None to start. OptionError, PluginError."""
        if line.version:
            return f"{version_line(self.name)}\n"
        answer = self.answer(line)
        if answer is not None or not line.print_config:
            return answer
        from nsqtw.daemon.logs import start_up_line
        from nsqtw.options.files import config_text

        resolved = self.resolve(line)
        for warning in resolved.warnings:
            complain_lines(start_up_line("WARNING", warning, time.time(), self.name))
        return config_text(resolved.options, resolved.sources, self.reader.table)

    def resolve(self, line: L) -> Resolved[O]:
        """The options of a start. OptionError."""
        return self.reader.resolve(line, os.environ)

    def config(self, line: L, resolved: Resolved[O]) -> RunningConfig:
        """Return the options of the program while it runs, and their sources, which a reload reads again."""
        from nsqtw.daemon.running_config import RunningConfig

        # twistd goes to another directory.
        named = self.reader.config_path(line, os.environ)
        there = attrs.evolve(line, config=os.path.abspath(named) if named else "")
        return RunningConfig(self.reader.table, resolved.options, partial(self.resolve, there))

    def usage(self, program: str) -> str:
        """Return the text of --help."""
        # A daemon that starts has no use for the pages.
        from nsqtw.options.help import usage

        return usage(program, self.reader)

    def importing_lazily(self, options: O) -> AbstractContextManager[None]:
        """While what runs is imported."""
        return lazy_imports.without_tls(not self.needs_tls(options))

    def service(self, config: TwistdWords) -> IService:
        """The service that twistd runs. Ends the process with one line when the options are wrong."""
        from nsqtw.daemon.process import cannot_start, daemon_reactor
        from nsqtw.daemon.twistd import TwistdService

        try:
            resolved = self.resolve(config.line)
        except FlagError as error:
            raise SystemExit(self.wrong_flag(error, f"twistd {self.twistd_name}")) from error
        except OptionError as error:
            raise SystemExit(cannot_start(error, program=self.name)) from error
        running = self.config(config.line, resolved)
        return TwistdService(
            self.load(), resolved.options, daemon_reactor(), resolved.warnings, config.parent, self.name, running
        )


class TwistdWords(TwistdOptions):
    """The words behind `twistd` and the name of a program."""

    program: ClassVar[Program[Any, Any]]
    line: Any

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read `options` as the program does. Ends the process where the program would end."""
        try:
            self.line = self.program.read(sys.argv[1:] if options is None else options)
            answer = str(self) if self.line.help else self.program.answered(self.line)
            if answer is not None:
                _print(answer)
                raise SystemExit(0)
        except FlagError as error:
            # For a UsageError twistd would print all of its own flags and ours before the cause.
            name = f"twistd {self.program.twistd_name}"
            raise SystemExit(self.program.wrong_flag(error, name)) from error
        except NsqtwError as error:
            from nsqtw.daemon.process import cannot_start

            raise SystemExit(cannot_start(error, program=self.program.name)) from error

    def __str__(self) -> str:
        return self.program.usage(f"twistd {self.program.twistd_name}")
