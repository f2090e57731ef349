"""
Log lines, as NSQ's daemons print them or as JSON.

    [nsqd] 2026/11/21 09:00:00.000123 INFO: TCP: new client(127.0.0.1:50000)
    {"time":"2026-11-21T08:00:00.000123+00:00","level":"info","text":"TCP: new ...","client":"127.0.0.1:50000"}

Events come from `twisted.logger`. Client test suites and operators search these lines, so one
event is one line; as text, an unexpected failure is followed by its traceback, whose lines begin with spaces: a text
of a peer in it cannot look like another event.

A format is what `twisted.logger.FileLogObserver` asks for: a function from an event to a line, or None for nothing.
`options.log_level` is looked at for every event, because it changes while the broker runs. What Twisted says of itself
is left out unless it is a warning or worse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from twisted.logger import LogEvent, LogLevel, formatEvent

from nsqtw.foreign_text import one_line, printable
from nsqtw.options.types import LEVELS

Format = Callable[[LogEvent], "str | None"]

_LEVELS = {
    LogLevel.debug: "debug",
    LogLevel.info: "info",
    LogLevel.warn: "warn",
    LogLevel.error: "error",
    LogLevel.critical: "fatal",
}
_NEXT_LINE = "\n    "


class LogOptions(Protocol):
    log_level: int
    log_prefix: str
    log_format: str


def log_format(options: LogOptions) -> Format:
    if options.log_format == "json":
        return JsonFormat(options)
    return TextFormat(options)


def start_up_failure(text: str, when: float, options: LogOptions | None = None, program: str = "nsqd") -> str:
    """The line that says why `program` does not run; without `options` when they could not be read."""
    if options is not None and options.log_format == "json":
        event = {"log_level": LogLevel.critical, "log_time": when, "log_format": "{error}", "error": text}
        return log_format(options)(event) or ""
    return start_up_line("FATAL", text, when, program)


def start_up_line(word: str, text: str, when: float, program: str = "nsqd") -> str:
    """
    Format a line from before there is a log, which starts with the name of `program`, whatever log-prefix says. NSQ's
    lines without a level have a shorter start.
    """
    if word:
        return log_line(f"[{program}] ", when, word, one_line(text))
    return f"{datetime.fromtimestamp(when):%Y/%m/%d %H:%M:%S} {one_line(text)}\n"


def log_line(prefix: str, when: float, word: str, text: str) -> str:
    """One line, with its end. `when` is seconds since 1970, shown in local time."""
    return f"{prefix}{datetime.fromtimestamp(when):%Y/%m/%d %H:%M:%S.%f} {word}: {text}\n"


def wanted_level(event: LogEvent, options: LogOptions) -> str | None:
    """The level of an event, as --log-level calls it; None for one that is left out."""
    level = _LEVELS[event.get("log_level") or LogLevel.info]
    number = LEVELS[level]
    if number < options.log_level or (number < LEVELS["warn"] and is_of_twisted(event)):
        return None
    return level


class TextFormat:
    """nsqd's lines."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def __call__(self, event: LogEvent) -> str | None:
        level = wanted_level(event, self._options)
        if level is None:
            return None
        text = one_line(formatEvent(event))
        failure = event.get("log_failure")
        if failure is not None:
            text += _NEXT_LINE + printable(failure.getTraceback()).rstrip().replace("\n", _NEXT_LINE)
        word = "WARNING" if level == "warn" else level.upper()
        return log_line(self._options.log_prefix, event["log_time"], word, text)


def is_of_twisted(event: LogEvent) -> bool:
    """Return whether Twisted, or something that uses its older log, says it."""
    namespace: str = event.get("log_namespace", "")
    return namespace.startswith("twisted.") or namespace == "log_legacy"


class JsonFormat:
    """
    Log lines as JSON objects, one a line, for programs that collect them. docs/how-to/logs.md has the shape.

    `time`, `level` and `text` are always there. Then come the fields that the event was logged with, under their names;
    `error` and `traceback` when it is a failure. Twisted's own events and those of libraries that use its older log
    have fields for Twisted only, so of these only the text is kept.
    """

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def __call__(self, event: LogEvent) -> str | None:
        level = wanted_level(event, self._options)
        if level is None:
            return None
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="microseconds"),
            "level": level,
            "text": formatEvent(event),
        }
        if not is_of_twisted(event):
            for name, value in event.items():
                if not name.startswith("log_"):
                    fields.setdefault(name, value)
        failure = event.get("log_failure")
        if failure is not None:
            fields.setdefault("error", f"{failure.type.__name__}: {failure.getErrorMessage()}")
            fields["traceback"] = failure.getTraceback()
        # ASCII, so control characters of a peer are escaped: this prevents log and terminal injection.
        return json.dumps(fields, separators=(",", ":"), default=str) + "\n"
