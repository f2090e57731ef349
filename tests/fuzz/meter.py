"""
What an example costs, counted in a way that no busy machine changes: lines of nsqtw that were run, and bytes of memory
at the worst moment. And what it left in the log.

Theory of operation. A trace function sees each line of nsqtw before it is run. It counts, and raises in the middle of
whatever runs when there were too many: a loop without end becomes a failure like any other. What it raises is no
`Exception`, so no handler of ours takes it for one of the errors it knows.
"""

from __future__ import annotations

import re
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from twisted.logger import ILogObserver, LogEvent, LogLevel, globalLogPublisher
from zope.interface import implementer

import nsqtw
from nsqtw.daemon.logs import log_format
from nsqtw.options.broker import Options

_OURS = (f"{Path(nsqtw.__file__).parent}/", f"{Path(__file__).parent}/mistakes/")


class Endless(BaseException):
    """More steps than an input of this size may take."""


class Broken(AssertionError):
    """What must hold for every input does not."""


class Meter:
    """
    Counts one example: `with meter.running(): ...`. Memory in two ways: what the process has at the most, which costs
    nothing and shows what takes a lot; and when it `weighs`, every byte, which makes an example four times as slow.
    """

    def __init__(self, most_steps: int, *, weighs: bool, lines: set[tuple[CodeType, int]] | None = None) -> None:
        self.steps = 0
        self.peak = 0
        self.growth = 0
        """Bytes by which the process is larger than it ever was."""
        self._weighs = weighs
        self.lines = lines
        """Where it was, when that is wanted."""
        self._most_steps = most_steps
        self._is_over = False
        # Kept: Python 3.11, when it meets its recursion limit in there, lets go of it and calls it once more.
        self._trace = self._called

    @contextmanager
    def running(self) -> Iterator[None]:
        """Broken when it logs an error nobody foresaw, Endless when it goes on and on."""
        log = _Log()
        traced, before = sys.gettrace(), _largest()
        globalLogPublisher.addObserver(log)
        if self._weighs:
            tracemalloc.start()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(traced)
            self.growth = _largest() - before
            if self._weighs:
                self.peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            globalLogPublisher.removeObserver(log)
        if self._is_over:  # something took it for an error of its own
            raise Endless
        if log.mistakes:
            raise Broken(log.mistakes[0])

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._stepped if _is_ours(frame.f_code) else None

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.steps += 1
            if self.lines is not None:
                self.lines.add((frame.f_code, frame.f_lineno))
            if self.steps > self._most_steps:
                self._is_over = True
                raise Endless(f"more than {self._most_steps} steps")
        return self._stepped


@implementer(ILogObserver)
class _Log:
    """Looks at what is logged: no error that nobody foresaw, and lines of plain text."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None or event.get("log_level") is LogLevel.critical:
            told = failure.getTraceback() if failure is not None else str(event.get("log_format"))
            self.mistakes.append(f"logged: {told}")
            return
        try:
            lines = [form(event) or "\n" for form in _FORMATS]
        except Exception as error:  # Twisted would tell nobody
            self.mistakes.append(f"cannot be logged: {error!r}: {event.get('log_format')}")
            return
        for line in lines:
            if _CONTROL.search(line[:-1]) or "Unable to format" in line:
                self.mistakes.append(f"no line of plain text in the log: {line!r}")


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FORMATS = tuple(log_format(Options(node_id=1, log_format=form)) for form in ("text", "json"))


def _largest() -> int:
    """Bytes that the process had in memory at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_known: dict[CodeType, bool] = {}


def _is_ours(code: CodeType) -> bool:
    found = _known.get(code)
    if found is None:
        found = _known[code] = code.co_filename.startswith(_OURS)
    return found
