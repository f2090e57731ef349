"""
Log lines as JSON objects, for programs that collect them. The shape is described in docs/operations-logs.md.

`time`, `level` and `text` are always there. Then come the fields that the event was logged with, under their names;
`error` and `traceback` when it is a failure. Twisted's own events and those of libraries that use its older log have
fields for Twisted's eyes only, so of these only the text is kept.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from twisted.logger import LogEvent, formatEvent

from nsqtw.net.log import LogOptions, is_of_twisted, wanted_level


class JsonFormat:
    """One object a line."""

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
        # ASCII, so whatever a peer sent is escaped: no terminal and no reader of lines sees a control character.
        return json.dumps(fields, separators=(",", ":"), default=str) + "\n"
