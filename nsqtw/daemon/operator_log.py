"""The operator's log, for modules that do not import Twisted: see OperatorLog."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger, LogLevel

_log = Logger()


def log(level: str, text: str, /, **fields: Any) -> None:
    """Tell the operator. From any thread. See OperatorLog."""
    if not fields:
        text, fields = "{text}", {"text": text}
    if level == "critical":
        _log.failure(text, **fields)
    else:
        _log.emit(LogLevel.levelWithName(level), text, **fields)
