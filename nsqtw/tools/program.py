"""
Start and end of NSQ's command line tools.

A tool is a module of this package that makes one `Tool` and whose `main` is the console script of the same name. Its
options are an attrs class, as those of the daemons. Messages go to stderr with the time, as Go's log package writes
them; lines of the client library have the level and number of NSQ's Go client. Exit codes: 0 after a clean stop, 1 for
an error, 2 for a wrong flag.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from nsqtw import NSQ_VERSION
from nsqtw.daemon.process import daemon_reactor
from nsqtw.errors import CommandError, FlagError, NsqtwError
from nsqtw.options.command_line import OptionReader
from nsqtw.options.fields import OptionTable
from nsqtw.options.help import usage
from nsqtw.options.types import BOOLEAN
from nsqtw.printing import complain, complain_lines, discard_stdout, write_line
from nsqtw.runtime.reactor import Reactor

O = TypeVar("O")  # noqa: E741

FAILED = 1
_WRONG_FLAG = _CRASHED = 2
_LEVELS = {LogLevel.info: "INF", LogLevel.warn: "WRN"}
_SIGNALS_OF_STOP = (signal.SIGINT, signal.SIGTERM)


class ToolError(NsqtwError):
    """The tool cannot go on: the text is its last line, and the exit code is 1."""


@attrs.define
class ToolCommandLine:
    """A command line of a tool: the flags beside its options, and the `given` options by name."""

    given: dict[str, Any] = attrs.Factory(dict)
    unread: tuple[str, ...] = ()
    stray: str = ""
    version: bool = attrs.field(default=False, metadata={"kind": BOOLEAN, "help": "print version string"})
    help: bool = attrs.field(default=False, metadata={"kind": BOOLEAN, "help": "print every flag and exit; also -h"})


class Run:
    """A running tool: its reactor, its log, and the signals it gets."""

    def __init__(self, name: str, reactor: Reactor) -> None:
        self.name = name
        self.reactor = reactor
        self._on_stop: list[Callable[[], object]] = []
        self.is_stopping = False
        self.exit_code = 0

    def say(self, text: str) -> None:
        """Write a line to stderr, with the time."""
        complain(timed(text))

    def on_stop(self, function: Callable[[], object]) -> None:
        """Call `function` on SIGINT and SIGTERM; at once if one came already."""
        self._on_stop.append(function)
        if self.is_stopping:
            function()

    def on_hang_up(self, function: Callable[[], object]) -> None:
        """Call `function` on SIGHUP, which ends a tool without one."""
        signal.signal(signal.SIGHUP, lambda number, frame: self.reactor.callFromThread(function))

    async def sleep(self, seconds: float) -> None:
        """Wait, at most until the tool is to stop."""
        if self.is_stopping:
            return
        done: Deferred[None] = Deferred()
        timer = self.reactor.callLater(seconds, done.callback, None)

        def wake() -> None:
            if timer.active():
                timer.cancel()
                done.callback(None)

        self._on_stop.append(wake)
        try:
            await done
        finally:
            self._on_stop.remove(wake)

    def stop(self) -> None:
        """Begin the stop, as a signal does."""
        if not self.is_stopping:
            self.is_stopping = True
            for function in list(self._on_stop):
                function()

    def fail(self, text: str) -> None:
        """Write a line, and begin a stop with exit code 1."""
        self.exit_code = FAILED
        self.say(text)
        self.stop()

    def listen_to_signals(self) -> None:
        """Let SIGINT and SIGTERM begin the stop. Later ones are ignored."""

        def stop(number: int, frame: object) -> None:
            self.reactor.callFromThread(self.stop)

        for number in _SIGNALS_OF_STOP:
            signal.signal(number, stop)


def _no_mistake(options: object) -> str:
    return ""


@attrs.frozen
class Tool(Generic[O]):
    """
    A command line tool. `mistake` returns the line of the first option that will not do, "" for none; `early_mistake`
    is the same for options that are checked even for --version. `run` is the tool; it raises ToolError or another
    NsqtwError to end with exit code 1. With `refuses_words`, words behind the flags are an error; otherwise they are
    ignored.
    """

    name: str
    summary: str
    options: type[O]
    mistake: Callable[[O], str]
    run: Callable[[O, Run], Awaitable[None]]
    refuses_words: bool = False
    early_mistake: Callable[[O], str] = _no_mistake

    @property
    def reader(self) -> OptionReader[O, Any]:
        """The options, for reading a command line and for the documentation."""
        return OptionReader(OptionTable(self.name, self.options), ToolCommandLine)

    def main(self) -> None:
        """The console script."""
        sys.exit(self.start(sys.argv[1:]))

    def start(self, words: Sequence[str]) -> int:
        """Run the tool with the words of its command line. Returns the exit code."""
        reader = self.reader
        try:
            line = reader.read_command_line(words)
        except FlagError as error:
            complain(str(error))
            complain_lines(usage(self.name, reader))
            return _WRONG_FLAG
        if line.help:
            complain_lines(usage(self.name, reader))
            return 0
        if self.refuses_words and line.unread:
            complain(timed(f"unknown arguments: [{' '.join(line.unread)}]"))
            return FAILED
        options = self.options(**line.given)
        mistake = self.early_mistake(options)
        if not mistake and line.version:
            return self._show_version()
        mistake = mistake or self.mistake(options)
        if mistake:
            complain(timed(mistake))
            return FAILED
        return self._run(options)

    def _show_version(self) -> int:
        try:
            write_line(f"{self.name} v{NSQ_VERSION}")
        except BrokenPipeError:
            discard_stdout()
        except CommandError as error:
            complain(timed(f"ERROR: {error}"))
            return FAILED
        return 0

    def _run(self, options: O) -> int:
        reactor = daemon_reactor()
        globalLogBeginner.beginLoggingTo([_LineObserver()], redirectStandardIO=False)
        run = Run(self.name, reactor)

        async def go() -> None:
            try:
                await self.run(options, run)
            except BrokenPipeError:  # the reader of stdout has enough
                discard_stdout()
            except NsqtwError as error:
                run.say(str(error))
                run.exit_code = FAILED

        def crashed(failure: Any) -> None:
            complain_lines(failure.getTraceback())
            run.exit_code = _CRASHED

        def begin() -> None:
            run.listen_to_signals()
            ended = Deferred.fromCoroutine(go())
            ended.addErrback(crashed)
            ended.addBoth(lambda _: reactor.stop())

        reactor.callWhenRunning(begin)
        reactor.run(installSignalHandlers=False)
        return run.exit_code


def timed(text: str) -> str:
    """Return a line as Go's log package writes it: local time, then the text."""
    return f"{time.strftime('%Y/%m/%d %H:%M:%S')} {text}"


@implementer(ILogObserver)
class _LineObserver:
    """Writes lines of the client library to stderr as NSQ's Go client does, and problems of Twisted."""

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        level = event.get("log_level", LogLevel.info)
        namespace = str(event.get("log_namespace", ""))
        if failure is not None:
            complain_lines(failure.getTraceback())
        elif level is LogLevel.debug:
            return
        elif namespace.startswith("nsqtw") or level is not LogLevel.info:
            complain(timed(f"{_LEVELS.get(level, 'ERR'):<4} {formatEvent(event)}"))
