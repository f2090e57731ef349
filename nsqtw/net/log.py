"""
Log lines as nsqd prints them: `[nsqd] 2026/11/21 09:00:00.000123 INFO: TCP: listening on 127.0.0.1:4150`.

Events come from `twisted.logger`. Client test suites and operators search these lines (nsqd specification
6.4), so one event is one line; only an unexpected failure is followed by its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from twisted.logger import ILogObserver, LogEvent, LogLevel, eventAsText
from zope.interface import implementer

from nsqtw.option_values import LEVELS
from nsqtw.options import Options

START_UP_PREFIX = "[nsqd] "
"""What is printed before the options are known to be good starts with this, whatever log-prefix says."""

_WORDS = {
    LogLevel.debug: (LEVELS["debug"], "DEBUG"),
    LogLevel.info: (LEVELS["info"], "INFO"),
    LogLevel.warn: (LEVELS["warn"], "WARNING"),
    LogLevel.error: (LEVELS["error"], "ERROR"),
    LogLevel.critical: (LEVELS["fatal"], "FATAL"),
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def log_line(prefix: str, when: float, word: str, text: str) -> str:
    """One line, with its end. `when` is seconds since 1970, shown in local time."""
    return f"{prefix}{datetime.fromtimestamp(when):%Y/%m/%d %H:%M:%S.%f} {word}: {text}\n"


@implementer(ILogObserver)
class LineLog:
    """
    A log observer that passes lines to `write`. `options.log_level` is looked at for every event, because it
    changes while the broker runs. What Twisted says of itself is left out unless it is a warning or worse.
    """

    def __init__(self, write: Callable[[str], object], options: Options) -> None:
        self._write = write
        self._options = options

    def __call__(self, event: LogEvent) -> None:
        level, word = _WORDS[event.get("log_level") or LogLevel.info]
        if level < self._options.log_level or (level < LEVELS["warn"] and _is_of_twisted(event)):
            return
        text = eventAsText(event, includeTimestamp=False, includeSystem=False)
        if event.get("log_failure") is None:
            # A peer's bytes may be in the text: they must not be able to write lines or move the cursor.
            text = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
        self._write(log_line(self._options.log_prefix, event["log_time"], word, text))


def _is_of_twisted(event: LogEvent) -> bool:
    namespace: str = event.get("log_namespace", "")
    return namespace.startswith("twisted.") or namespace == "log_legacy"
